// When everything would happen if times were constant: an event simulation of a schedule that knows
// no actors, for `plan` and as an oracle for the runs themselves.
#pragma once

#include "runtime/schemes/schedules/schedule.hpp"

#include <vector>

namespace troupe {

/// Seconds of one micro-batch, by chunk.
struct ChunkTimes {
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;
  double update = 0;
  double link = 0;           // of an activation to the next chunk
  double link_back = 0;      // of an error signal to the chunk before
  double predict = 0;        // of an estimate of its error signal (SignalFrom::predictor)
  double teach = 0;          // of a lesson; in a timeline only where estimates are mixed
  double predict_input = 0;  // of an estimate of its input (Schedule::inputs_predicted)
  double teach_input = 0;
};

struct Interval {
  Action action;
  double start = 0;
  double end = 0;
};

struct Timeline {
  std::vector<std::vector<Interval>> stages;  // by stage, in time
  double end = 0;
};

/// The first `batches` mini-batches. The error signal of a fused backward leaves when both halves
/// are done; that of a split one after the input gradient. An update delays the stage's next action
/// (its weights are awaited; where that is another chunk's, a run may put the action first).
Timeline simulate(const Schedule& schedule,
                  const std::vector<ChunkTimes>& times,
                  std::int64_t batches);

/// Rows of `columns` characters, one a stage. Micro-batches are counted through, modulo 10: digits
/// are forwards, letters backwards (a = 0), '=' an input gradient, '-' a weight gradient, '!' an
/// update, '.' idle.
std::vector<std::string> draw(const Timeline& timeline, std::int32_t micro_batches, int columns);

}  // namespace troupe
