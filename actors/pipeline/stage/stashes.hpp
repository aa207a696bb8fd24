// What a stage keeps from the forward of a micro-batch to its backward, and from the first half of a
// split backward to the second. How many micro-batches are kept at a time is the memory that a
// schedule costs.
#pragma once

#include "actors/pipeline/stage/micro_batch.hpp"
#include "messages/results.hpp"
#include "runtime/system/machine.hpp"

#include <cstdint>
#include <map>

namespace troupe {

/// What a stage keeps from forward to backward (pipeline.activations).
enum class KeepActivations : std::uint8_t { fifo, recompute };

/// Of one micro-batch.
struct KeptForward {
  Weights weights{};   // what the forward read, where the backward uses the same; else empty
  Weights borrowed{};  // the forward's slices of tied parameters, which the backward uses too
  Stash stash{};       // fifo
  Bundle input{};      // recompute
  Tensor labels{};     // recompute, head; where a module makes its error signal of them
  Tensor output{};     // where a module makes its error signal itself
  std::int64_t first_sample = 0;
};

class Stashes {
 public:
  Stashes(KeepActivations policy, std::int32_t stage) : policy_(policy), stage_(stage) {}

  KeepActivations policy() const { return policy_; }

  /// What is kept of the micro-batch of `forward`: nothing yet.
  KeptForward& keep(const Action& forward);

  /// The weights that the forward of `backward` read, where they were kept.
  const Weights& weights(const Action& backward) const {
    return kept_.at(micro_batch_of(backward)).weights;
  }

  KeptForward take(const Action& backward);

  void keep_deltas(const Action& input_gradient, Stash deltas);
  Stash take_deltas(const Action& weight_gradient);

  /// Records the greatest number that was kept at a time; a second call records nothing.
  void record_count_max(Effects& fx);

  void archive(auto& a) { a(kept_, deltas_, count_max_, recorded_); }

 private:
  KeepActivations policy_;
  std::int32_t stage_;
  std::map<MicroBatch, KeptForward> kept_;
  std::map<MicroBatch, Stash> deltas_;  // from input gradient to weight gradient
  std::int64_t count_max_ = 0;
  bool recorded_ = false;
};

}  // namespace troupe
