// The kernel jobs of a stage, as values: what each computes from. A job holds handles of all that it
// reads, runs on the device's stream and gives back what it has made.
#pragma once

#include "actors/pipeline/stage/stashes.hpp"
#include "runtime/model/chunk.hpp"
#include "runtime/schemes/decoupled/decoupled.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

/// The entry of an ErrorSignal that is SignalInputs::influence.
inline constexpr const char* kInfluence = "influence";

/// The forward of a micro-batch, or of a batch of an evaluation.
struct ForwardJob {
  std::shared_ptr<const Chunk> chunk;
  Weights weights;
  std::vector<Tensor> buffers;
  Bundle input;
  Tensor labels{};  // of the head
  bool training = true;
  std::uint64_t seed = 0;
  std::int64_t first_sample = 0;
  bool keep = false;       // the stash
  bool influence = false;  // ForwardPass::influence is asked for

  ForwardPass operator()(Stream& stream);
};

/// The half of a backward that the stage before waits for.
struct InputGradientJob {
  std::shared_ptr<const Chunk> chunk;
  KeptForward kept;  // its weights are those that the backward reads, borrowed slices included
  Bundle error;
  bool recompute = false;  // the forward first, for its stash
  /// For a recomputed forward, and any will do: it normalises by its own micro-batch, and what it
  /// makes of the buffers is dropped.
  std::vector<Tensor> buffers;
  std::uint64_t seed = 0;
  std::shared_ptr<const ModuleSignal> signal{};  // of a decoupled module; empty: backpropagation
  bool makes_error = false;                      // `signal` makes the error signal

  InputGradient operator()(Stream& stream);
};

/// The other half: adds to the mini-batch's gradient.
struct WeightGradientJob {
  std::shared_ptr<const Chunk> chunk;
  Stash deltas;
  std::vector<Tensor> gradient;  // so far
  std::int32_t divide_by = 1;

  WeightGradient operator()(Stream& stream);
};

/// Both halves at once.
struct BackwardJob {
  InputGradientJob input_gradient;
  std::vector<Tensor> gradient;  // so far
  std::int32_t divide_by = 1;

  BackwardPass operator()(Stream& stream);
};

}  // namespace troupe
