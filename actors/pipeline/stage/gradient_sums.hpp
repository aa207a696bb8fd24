// Accumulation: the gradients of a mini-batch's micro-batches, added up chunk by chunk, and the
// account of which weights each micro-batch read. Both go into the mini-batch's push.
#pragma once

#include "actors/pipeline/stage/by_micro_batch.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

/// What a chunk has to push for one mini-batch.
struct BatchGradient {
  std::vector<Tensor> gradient;  // by slice; own ones first, then borrowed ones
  std::vector<Read> reads;       // by micro-batch
  double read_time = 0;          // when the oldest forward began, seconds
  Weights forward;               // what the first forward read, where the gap is to be measured
};

class GradientSums {
 public:
  /// The forward `a` starts at time `now` and reads the weights of `view`, which are of `version`.
  void open_read(const Action& a, const View& view, std::int64_t version, double now);

  /// The natural step of the forward whose backward is `a`.
  std::int64_t forward_natural(const Action& a) const { return opened(a).natural; }

  /// A backward starts and reads the weights of `view` (none: those of its forward).
  void begin_backward(std::optional<View> view, std::int64_t version);

  /// The backward `a` that was begun, or its first half, is done: its micro-batch has read all that
  /// it will read.
  void close_read(const Action& a);

  /// The sum moves into the job that adds to it, and comes back.
  std::vector<Tensor> take(std::int32_t chunk) { return std::move(sums_[chunk].gradient); }

  void put(std::int32_t chunk, std::vector<Tensor> gradient) {
    sums_[chunk].gradient = std::move(gradient);
  }

  /// The gap between these and the weights that the gradient will be applied to is to be measured.
  void keep_forward(const Action& a, Weights weights) {
    forward_weights_[{a.chunk, a.batch}] = std::move(weights);
  }

  /// All of the mini-batch that `update` pushes.
  BatchGradient take_batch(const Action& update);

  void archive(auto& a) { a(sums_, open_, forward_weights_, backward_view_, backward_version_); }

 private:
  struct OpenRead {
    View view;
    std::int64_t version = 0;
    std::int64_t natural = 0;
    double time = 0;
  };

  /// Of the forward whose backward is `a`.
  const OpenRead& opened(const Action& a) const;

  std::map<std::int32_t, BatchGradient> sums_;  // by chunk
  ByMicroBatch<OpenRead> open_;                 // from forward to backward
  std::map<std::pair<std::int32_t, std::int64_t>, Weights> forward_weights_;  // by chunk and batch
  std::optional<View> backward_view_;  // of the backward that runs; none: that of its forward
  std::int64_t backward_version_ = 0;
};

}  // namespace troupe
