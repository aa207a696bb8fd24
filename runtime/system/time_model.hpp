// How long work takes where time is modelled. A time is a function of (seed, stage, work, stamp),
// never of a count, so that it is the same whatever else is switched on.
#pragma once

#include "experiment.pb.h"
#include "runtime/schemes/timeline.hpp"
#include "runtime/system/machine.hpp"

#include <vector>

namespace troupe {

class TimeModel {
 public:
  /// `chunks`: mean seconds of one micro-batch, by chunk (from FLOPs, or as the experiment says:
  /// mean_times()).
  TimeModel(const proto::Clock& clock, std::vector<ChunkTimes> chunks, std::uint64_t seed);

  /// Seconds of a job; 0 for work that is not modelled.
  double work(const Run& run) const;
  /// Seconds of a tensor's way between two stages.
  double link(const Message& message) const;

  const std::vector<ChunkTimes>& mean() const { return chunks_; }

 private:
  double sample(const proto::TimeModel& model,
                double mean,
                std::uint64_t what,
                const Stamp& stamp) const;

  proto::Clock clock_;
  std::vector<ChunkTimes> chunks_;
  std::uint64_t seed_;
};

/// The mean times of each chunk: `clock`'s seconds (of a stage; shared equally by its chunks), or
/// FLOPs over clock.flops. flops: of one micro-batch, by chunk: {forward, input gradient, weight
/// gradient}.
struct ChunkFlops {
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;
};

Result<std::vector<ChunkTimes>> mean_times(const proto::Clock& clock,
                                           const std::vector<ChunkFlops>& flops,
                                           std::int32_t stages);

}  // namespace troupe
