// What a stage keeps from the forward of a micro-batch to its backward, and from the first half of a
// split backward to the second. How many micro-batches are kept at a time is the memory that a
// schedule costs.
#pragma once

#include "actors/pipeline/stage/by_micro_batch.hpp"
#include "messages/results.hpp"
#include "runtime/system/machine.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

/// What a stage keeps from forward to backward (pipeline.activations).
enum class KeepActivations : std::uint8_t { fifo, recompute };

/// Of a micro-batch whose forward is made again, or whose module makes its error signal itself.
struct KeptMore {
  Bundle input{};   // recompute
  Tensor labels{};  // recompute, head; where a module makes its error signal of them
  Tensor output{};  // where a module makes its error signal itself
};

/// Of one micro-batch. There are many at a time, and what few of them have lies apart.
struct KeptForward {
  Weights weights{};   // what the forward read, where the backward uses the same; else empty
  Weights borrowed{};  // the forward's slices of tied parameters, which the backward uses too
  Stash stash{};       // fifo
  std::vector<KeptMore> more{};  // one or none
  std::int64_t first_sample = 0;
};

class Stashes {
 public:
  Stashes(KeepActivations policy, std::int32_t stage) : policy_(policy), stage_(stage) {}

  KeepActivations policy() const { return policy_; }

  /// What is kept of the micro-batch of `forward`: nothing yet.
  KeptForward& keep(const Action& forward);

  /// The weights that the forward of `backward` read, where they were kept.
  const Weights& weights(const Action& backward) const;

  KeptForward take(const Action& backward);

  void keep_deltas(const Action& input_gradient, Stash deltas);
  Stash take_deltas(const Action& weight_gradient);

  /// Records the greatest number that was kept at a time; a second call records nothing.
  void record_count_max(Effects& fx);

  void archive(auto& a) { a(kept_, deltas_, count_max_, recorded_); }

 private:
  KeepActivations policy_;
  std::int32_t stage_;
  ByMicroBatch<KeptForward> kept_;
  ByMicroBatch<Stash> deltas_;  // from input gradient to weight gradient
  std::int64_t count_max_ = 0;
  bool recorded_ = false;
};

}  // namespace troupe
