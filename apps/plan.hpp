// What can be told of an experiment before it runs: stages, memory, idle time, staleness, a
// picture.
#pragma once

#include "apps/topologies/blueprint.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

/// Bytes of one chunk with its shard and optimizer, at most at once.
struct ChunkMemory {
  std::int64_t copies =
      1;  // of its weights: kept by the shard, predicted, or held by the stage for a backward
  std::int64_t stashes = 0;  // micro-batches between forward and backward
  double weights = 0;        // all copies
  double moments = 0;        // of the optimizer
  double gradient = 0;
  double activations = 0;  // all stashes

  double total() const { return weights + moments + gradient + activations; }
};

ChunkMemory memory_of(const Blueprint& blueprint, std::int32_t chunk);

/// Bytes of all chunks on `device`, of every replica.
double memory_needed(const Blueprint& blueprint, Device device);

/// A line for each device that has less memory than that; else empty.
std::string memory_warning(const Blueprint& blueprint);

/// Where a mini-batch's weights come from once the pipe is full, seen from its micro-batch 0.
struct ChunkReads {
  std::int64_t forward_behind = 0;  // b minus the step read
  std::int64_t forward_reach = 0;   // steps predicted beyond it
  bool stashed = false;             // the backward uses what the forward read
  std::int64_t backward_behind = 0;
  std::int64_t backward_reach = 0;

  /// Steps between what the forward computed at, by its prediction, and what the gradient is
  /// applied to.
  std::int64_t left() const { return forward_behind - forward_reach; }
};

ChunkReads reads_of(const Blueprint& blueprint, std::int32_t chunk);

/// By the modelled times alone.
struct Forecast {
  double period = 0;       // seconds a mini-batch takes once the pipe is full
  double idle_steady = 0;  // share of all stages' time, then
  double idle_run = 0;     // of a whole run; as idle_steady where its length is not known
};

Forecast forecast(const Blueprint& blueprint);

/// Everything, in some thirty lines.
std::string describe(const Blueprint& blueprint);
/// What `run` begins with: the scheme, and each stage's layers.
std::string describe_briefly(const Blueprint& blueprint);

}  // namespace troupe
