// A schedule with little idle time for stages that are not alike: `troupe plan --zero-bubble`.
#pragma once

#include "apps/topologies/blueprint.hpp"

#include <string>
#include <vector>

namespace troupe {

struct ZeroBubble {
  Schedule schedule;
  std::string
      words;  // a mini-batch's seconds and idle time beside those of the blueprint's own schedule
};

/// Finds the order of `blueprint`'s forwards, input gradients and weight gradients by `times`, of its chunks
/// (automatic_zero_bubble). A stage takes at most `memory` bytes; 0: no limit. Error (usage) where the stages do not have
/// one whole chunk each, which learns by backpropagation, or a stage has no room for a micro-batch.
Result<ZeroBubble> zero_bubble(const Blueprint& blueprint,
                               const std::vector<ChunkTimes>& times,
                               double memory);

}  // namespace troupe
