// How many bytes training needs, chunk by chunk: counted by following the schedule, not by running it.
#pragma once

#include "apps/topologies/blueprint.hpp"

#include <cstdint>
#include <string>

namespace troupe {

/// Bytes of one chunk with its shard and optimizer, at most at once.
struct ChunkMemory {
  /// Of its weights: kept by the shard, predicted, or held by the stage for a backward.
  std::int64_t copies = 1;
  std::int64_t stashes = 0;  // micro-batches between forward and backward
  double weights = 0;        // all copies
  double moments = 0;        // of the optimizer
  double gradient = 0;
  double stash = 0;        // what one of them keeps
  double activations = 0;  // all stashes, and what a forward makes beside

  double total() const { return weights + moments + gradient + activations; }
};

ChunkMemory memory_of(const Blueprint& blueprint, std::int32_t chunk);

/// Bytes of all chunks on `device`, of every replica.
double memory_needed(const Blueprint& blueprint, Device device);

/// A line for each device that has less memory than that; else empty.
std::string memory_warning(const Blueprint& blueprint);

}  // namespace troupe
