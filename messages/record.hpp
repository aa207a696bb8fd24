// What machines tell the Recorder. A record is no delivery: it changes no order and no hash.
#pragma once

#include "messages/stamp.hpp"

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace troupe {

/// The loss of one micro-batch, from the head.
struct LossRecord {
  Stamp stamp;
  std::int64_t samples = 0;
  std::int64_t rows = 0;  // losses in the sum: one a sample, or one a position of a sequence
  Tensor result;  // float64 (2): sum of the rows' losses, rows predicted right (kernels/loss.hpp)
};

/// A gradient was applied at a shard: what it had read, and how old that was.
struct AppliedRecord {
  Stamp stamp;                  // micro_batch unused
  std::int64_t applied_to = 0;  // version before the update
  double rate = 0;              // of this update
  double seconds = 0;           // since the oldest forward read, by the run's clock
  double gap = -1;  // |W applied to - W of forward|, RMS over the parameters; -1: not measured
  std::vector<Read> reads;  // by micro-batch
};

/// An evaluation has ended.
struct EvaluationRecord {
  std::int64_t step = 0;
  double loss = 0;
  double accuracy = 0;  // 0 where targets are values
  bool has_accuracy = false;
  std::int64_t samples = 0;
};

/// A stage has finished its sequence.
struct StageRecord {
  std::int32_t stage = 0;
  std::int64_t stashes_max = 0;  // the most micro-batches kept between forward and backward
};

/// A kernel job ran (told by the driver, which knows the clock).
struct BusyRecord {
  ActorId actor = 0;
  double start = 0;  // seconds of the run's clock
  double end = 0;
  const char* what = "";
  Stamp stamp;
};

using RecordEntry =
    std::variant<LossRecord, AppliedRecord, EvaluationRecord, StageRecord, BusyRecord>;

}  // namespace troupe
