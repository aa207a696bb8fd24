// The weight policies that Troupe comes with, one file a family.
#pragma once

#include "runtime/schemes/policies/policy.hpp"

#include <memory>
#include <vector>

namespace troupe::policies {

/// As runtime/CMakeLists.txt lists them: each has a function of its name in this namespace.
std::vector<PolicyScheme> built_in();

/// Forward and backward at the natural step: for policies that act on the step alone.
std::shared_ptr<const ViewPolicy> stashed_view(const WeightContext& context,
                                               const Schedule& schedule);

/// Forward and backward at what is newest.
std::shared_ptr<const ViewPolicy> latest_view(const WeightContext& context,
                                              const Schedule& schedule);

}  // namespace troupe::policies
