// The cast of an experiment, whichever topology it has, and its modelled times.
#pragma once

#include "apps/topologies/blueprint.hpp"
#include "runtime/system/machine.hpp"

#include <vector>

namespace troupe {

Cast make_cast(const Blueprint& blueprint);

/// Means of what a worker does at a time, by chunk: a micro-batch, a portion of Sandblaster's batch,
/// or a mini-batch of sparse rows.
std::vector<ChunkTimes> modelled_times(const Blueprint& blueprint);

}  // namespace troupe
