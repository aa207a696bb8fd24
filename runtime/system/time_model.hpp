// How long work takes where time is modelled. A time is a function of (seed, stage, work, stamp),
// and of the clock where stragglers take turns by it; never of a count, so that it is the same
// whatever else is switched on.
#pragma once

#include "messages/proto.hpp"
#include "runtime/data/batch_sizes.hpp"
#include "runtime/schemes/schedules/timeline.hpp"
#include "runtime/system/machine.hpp"

#include <memory>
#include <vector>

namespace troupe {

class TimeModel {
 public:
  /// `chunks`: mean seconds of one micro-batch of mini-batch 0, by chunk (from FLOPs, or as the
  /// experiment says: mean_times()). Those from FLOPs grow with mini-batches as `sizes` does.
  TimeModel(const proto::Clock& clock,
            std::vector<ChunkTimes> chunks,
            std::uint64_t seed,
            std::int32_t replicas = 1,
            BatchSizes sizes = BatchSizes());

  /// Seconds of a job that begins at `now`; 0 for work that is not modelled.
  double work(const Run& run, double now) const;
  /// Seconds of a tensor's way between two stages, or between a replica and a server or another
  /// replica. Only for messages that Effects::send marks as modelled.
  double link(const Message& message) const;
  /// Factor on the times of a replica's mini-batch at `now`: its machine's, and a straggler's.
  double slowness(std::int32_t replica, std::int64_t batch, double now) const;

  const std::vector<ChunkTimes>& mean() const { return chunks_; }

 private:
  double sample(const proto::TimeModel& model,
                double mean,
                std::uint64_t what,
                const Stamp& stamp) const;
  double link(const Stamp& stamp, bool activation) const;

  std::shared_ptr<const proto::Clock> clock_;
  double exchange(std::int32_t replica,
                  const Stamp& stamp,
                  std::uint64_t what,
                  std::int64_t bytes,
                  bool far = false) const;

  std::vector<ChunkTimes> chunks_;
  std::uint64_t seed_;
  std::vector<double> machines_;  // by replica: factor on its times
  BatchSizes sizes_;
};

/// The mean times of each chunk: `clock`'s seconds (of a stage, shared equally by its chunks, or
/// of a chunk), or FLOPs over clock.flops. flops: of one micro-batch, by chunk: {forward, input
/// gradient, weight gradient, ...}. stage_of: by chunk; between neighbours on one stage no link takes
/// time.
struct ChunkFlops {
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;
  double predict = 0;  // an estimate of the chunk's error signal, where something predicts it
  double teach = 0;
  double predict_input = 0;  // an estimate of its input, where something predicts that
  double teach_input = 0;
};

Result<std::vector<ChunkTimes>> mean_times(const proto::Clock& clock,
                                           const std::vector<ChunkFlops>& flops,
                                           const std::vector<std::int32_t>& stage_of);

}  // namespace troupe
