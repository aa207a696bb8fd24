// The cast of an experiment, whichever topology it has, and its modelled times.
#pragma once

#include "apps/topologies/pipeline.hpp"

#include <vector>

namespace troupe {

/// Error (usage) where the topology cannot have what the experiment asks for. `blueprint` has its
/// chunks; make_blueprint asks.
Result<void> check_topology(const Blueprint& blueprint);

/// Error (usage) where the experiment asks for what the run's clock cannot give.
Result<void> check_clock(const Blueprint& blueprint, bool virtual_clock);

Cast make_cast(const Blueprint& blueprint);

/// Means of what a worker does at a time, by chunk: a micro-batch, a portion of Sandblaster's batch,
/// or a mini-batch of sparse rows.
std::vector<ChunkTimes> modelled_times(const Blueprint& blueprint);

}  // namespace troupe
