// Runs whose chunks are cut in width (pipeline.width, runtime/model/width.hpp).
#pragma once

#include "apps/topologies/blueprint.hpp"
#include "runtime/schemes/constraint.hpp"

namespace troupe {

/// Cuts network, schedule and views in width, where the experiment asks for it. Error (usage) where a layer is not made
/// for it.
Result<void> widen(Blueprint& blueprint);

/// What an experiment that is cut in width has to pass.
Constraints<proto::Experiment> width_checks();

}  // namespace troupe
