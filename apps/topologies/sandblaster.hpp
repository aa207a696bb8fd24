// Experiment -> cast of Sandblaster: a coordinator, R workers that make portions of the batch's
// gradient, and a shard for each slice of the weights.
#pragma once

#include "apps/topologies/blueprint.hpp"
#include "runtime/schemes/constraint.hpp"
#include "runtime/system/machine.hpp"

#include <vector>

namespace troupe {

/// What it cannot be; these hold of every other experiment.
Constraints<proto::Experiment> sandblaster_checks();
Constraints<Blueprint> sandblaster_data_checks();
Constraints<Blueprint> sandblaster_chunk_checks();

Cast build_sandblaster(const Blueprint& blueprint);

/// Of a portion.
std::vector<ChunkTimes> sandblaster_times(const Blueprint& blueprint);

}  // namespace troupe
