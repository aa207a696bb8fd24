// The probe of a cast: what measures the angle of its modules' updates to backpropagation.
#pragma once

#include "apps/topologies/blueprint.hpp"
#include "runtime/schemes/constraint.hpp"
#include "runtime/system/machine.hpp"

#include <memory>

namespace troupe {

std::unique_ptr<Machine> make_probe(const Blueprint& blueprint, Stream& stream);

/// One replica, alone: of several it is not settled which weights a mini-batch's update is to be held against.
Constraints<proto::Experiment> probe_checks();

}  // namespace troupe
