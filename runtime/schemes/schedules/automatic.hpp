// Zero bubble for times that are not alike (Qi et al. 2024, arXiv:2401.10241, section 3.1): the order of
// a mini-batch's forwards, input gradients and weight gradients is searched for, by how long each takes.
#pragma once

#include "kernels/result.hpp"
#include "runtime/schemes/schedules/schedule.hpp"
#include "runtime/schemes/schedules/timeline.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

struct AutomaticOptions {
  std::vector<ChunkTimes> times;   // by stage, which has the chunk of the same number
  std::int32_t micro_batches = 1;  // of a mini-batch
  std::vector<std::int64_t>
      stashes;  // by stage: micro-batches between forward and weight gradient, at most
};

/// A schedule of name "file", whose rows are the order found. It is no slower than any of one_f_one_b, gpipe, zb_h1 and
/// zb_2p that keeps to the stashes. The same options make the same order, whatever the machine. Error (usage) where a stage
/// may keep no micro-batch at all.
///
/// The start is the paper's heuristic, once for each of its parameters: a stage prefers an input gradient to a forward
/// and a forward to a weight gradient, which fills gaps of at least a share of its length and makes room. Where a move of
/// one action along its stage's row then makes the mini-batch shorter, it is moved.
Result<Schedule> automatic_zero_bubble(const AutomaticOptions& options);

/// Seconds of a mini-batch, once the pipe is full, of a flushed schedule.
double period_of(const Schedule& schedule, const std::vector<ChunkTimes>& times);

}  // namespace troupe
