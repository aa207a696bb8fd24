// The weight policies that Troupe comes with, one file a family. `policy.cpp` lists them.
#pragma once

#include "runtime/schemes/policy.hpp"

#include <memory>

namespace troupe::policies {

WeightScheme latest();
WeightScheme stash();
WeightScheme vertical_sync();
WeightScheme double_buffered();
WeightScheme accumulate();
WeightScheme spectrain();
WeightScheme spectrain_paper();
WeightScheme nwpt();
WeightScheme geometric();
WeightScheme spike_compensation();
WeightScheme xpipe();
WeightScheme pipeoptim();
WeightScheme pipemare();
WeightScheme nesterov();

/// Forward and backward at the natural step: for policies that act on the step alone.
std::shared_ptr<const ViewPolicy> stashed_view(const WeightContext& context,
                                               const Schedule& schedule);

/// Forward and backward at what is newest.
std::shared_ptr<const ViewPolicy> latest_view(const WeightContext& context,
                                              const Schedule& schedule);

}  // namespace troupe::policies
