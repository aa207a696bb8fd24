// What copies of servers ask of an experiment (replicas.copies).
#pragma once

#include "apps/topologies/blueprint.hpp"
#include "runtime/schemes/constraint.hpp"

namespace troupe {

/// The rows that an experiment has to pass.
Constraints<proto::Experiment> copy_checks();

/// The row that is asked when the chunks are known.
Constraint<Blueprint> copies_that_decide_alike();

}  // namespace troupe
