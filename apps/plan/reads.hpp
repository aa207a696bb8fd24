// Which steps the forward and the backward of a chunk read, once the pipe is full.
#pragma once

#include "apps/topologies/blueprint.hpp"

#include <cstdint>

namespace troupe {

/// Where a mini-batch's weights come from once the pipe is full, seen from its micro-batch 0.
struct ChunkReads {
  std::int64_t forward_behind = 0;  // b minus the step read
  std::int64_t forward_reach = 0;   // steps predicted beyond it
  bool stashed = false;             // the backward uses what the forward read
  std::int64_t backward_behind = 0;
  std::int64_t backward_reach = 0;
  /// Updates in the mean from what the forward read to what the gradient is applied to: forward_behind,
  /// and on servers those of the other replicas.
  double lag = 0;

  /// Of these, how many lie beyond what the forward computed at, by its prediction.
  double left() const { return lag - static_cast<double>(forward_reach); }
};

ChunkReads reads_of(const Blueprint& blueprint, std::int32_t chunk);

}  // namespace troupe
