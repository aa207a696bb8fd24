// What kernel jobs make. A machine asks for a job, the driver runs it, and the machine gets what it
// made as `Ran<T>`, T the type that this kind of job makes. State that a job changes (moments, sums
// that wait to be sent) moves into the job and comes back in its result, so that nobody else can see
// it half done.
#pragma once

#include "messages/ran.hpp"
#include "messages/update.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace troupe {

class OptimizerStep;
class Scale;
class Step;

/// Tensors that a layer keeps for its backward, by layer of the chunk.
using Stash = std::vector<std::vector<Tensor>>;

/// A batch of a data set (a Source).
struct GatheredBatch {
  Tensor x;
  Tensor target;
};

/// The forward of a chunk.
struct ForwardPass {
  Bundle y;                     // empty where the chunk ends with the loss
  Stash stash;                  // empty where nothing is to be kept
  std::vector<Tensor> buffers;  // the state that no gradient drives, as it is now
  Tensor result;                // of the last chunk: loss and hits (kernels/loss.hpp)
  Tensor influence{};           // where it is asked for: the gradient by x of the sum over y
};

/// The half of a backward that the chunk before waits for.
struct InputGradient {
  Bundle dx;     // empty where no chunk before wants it
  Stash deltas;  // for the weight gradient
};

/// The other half.
struct WeightGradient {
  std::vector<Tensor> gradient;  // by slice: the sum over the micro-batches so far
};

/// Both halves at once.
struct BackwardPass {
  Bundle dx;
  std::vector<Tensor> gradient;
};

/// A job that makes an update.
struct Applied {
  Weights next{};                      // the new slices; empty where no step was asked for
  std::vector<Weights> predictions{};  // in the order of Apply::reaches
  double gap = -1;  // RMS distance of the base from the forward's weights; -1: not measured
  std::int64_t applied_to = 0;                 // of a shared buffer: its updates before this one
  std::int64_t version = 0;                    // ... and when `next` was copied from it
  std::vector<Tensor> outgoing{};              // by slice: what the Outbound asked for
  std::vector<std::vector<Tensor>> moments{};  // by slice: where they travel
  std::vector<Residual> residuals{};           // by slice: Outbound::residuals, as they are now
  std::vector<LinkState> links{};              // by slice: Outbound::links, as they are now

  static constexpr auto kFacts = stays_here();

  Stamp identity() const { return {.batch = version}; }
};

/// A job of an exchange or an extension of one's own: what it makes, in its own order.
struct Computed {
  std::vector<Tensor> tensors{};
  std::vector<double> numbers{};
  std::string what{};  // which of its jobs
};

/// A step of a replica's optimizer, with the optimizer's state.
struct StepMade {
  Applied applied;
  std::shared_ptr<OptimizerStep> step;
};

/// An update of a server, with the state of its rule.
struct CombineMade {
  Updated updated;
  std::shared_ptr<Scale> scale;
  std::shared_ptr<Step> step;
  LinkState link{};  // of what the server answers, or a group's sends up
};

/// Sparse rows: what a worker did with a mini-batch.
struct RowsDone {
  Tensor result;                        // as LossRecord::result
  std::int64_t updates = 0;             // of the shared buffer, at the end
  std::vector<std::int64_t> staleness;  // of each row, in updates
};

/// Sparse rows: a copy of the shared buffer and what it is worth on the test data.
struct RowsLooked {
  struct Score {
    double loss = 0;         // summed over the test rows
    std::int64_t right = 0;  // rows
  };

  Tensor weights;
  std::optional<Score> score;  // nothing where nobody asked
};

/// Sandblaster: the sum of the portions that are in it.
struct PortionsAdded {
  Tensor sum;
};

/// Sandblaster: vectors after their commands, and the dot products asked for.
struct VectorsDone {
  std::vector<Tensor> vectors;
  std::vector<double> dots;
};

}  // namespace troupe
