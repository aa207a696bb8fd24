// Experiment -> cast of Sandblaster: a coordinator, R workers that make portions of the batch's
// gradient, and a shard for each slice of the weights.
#pragma once

#include "apps/topologies/pipeline.hpp"

#include <vector>

namespace troupe {

/// Error (usage) where the experiment asks for what has no meaning here.
Result<void> check_sandblaster(const Blueprint& blueprint);

Cast build_sandblaster(const Blueprint& blueprint);

/// Of a portion.
std::vector<ChunkTimes> sandblaster_times(const Blueprint& blueprint);

}  // namespace troupe
