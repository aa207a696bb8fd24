// What kernel jobs make. A machine asks for a job, the driver runs it, and the machine gets what it
// made as `Ran<T>`, T the type that this kind of job makes. State that a job changes (moments, sums
// that wait to be sent) moves into the job and comes back in its result, so that nobody else can see
// it half done.
#pragma once

#include "messages/stamp.hpp"
#include "messages/update.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

class OptimizerStep;
class Scale;
class Step;

/// A machine has two lanes: jobs of its sequence and jobs of evaluations.
enum class Lane : std::uint8_t { sequence, mark };

/// A job has ended.
template <class T>
struct Ran {
  Lane lane = Lane::sequence;
  T made;
};

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

/// A job of a replica's optimizer that measures: the gradient's sums of squares.
struct NormsMeasured {
  std::vector<double> norms;     // by tensor, in layer order
  std::vector<Tensor> gradient;  // by slice, handed back, the shares of tied parameters added
};

/// A job that adds up or joins gradients.
struct Summed {
  std::vector<Tensor> gradient;  // by slice
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
};

/// A job that moves predictions as far as their weights were moved.
struct Followed {
  std::vector<Weights> predictions;
};

/// A job that copies the buffer that replicas share.
struct SharedRead {
  Weights weights;
  std::int64_t version = 0;  // updates of the buffer at the copy
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

// -- every tensor of a result, for the driver that marks them as ready ------------------------------

template <class F>
void for_each_tensor(Tensor& tensor, F&& f) {
  if (tensor) {
    f(tensor);
  }
}

template <class F>
void for_each_tensor(NamedTensor& named, F&& f) {
  for_each_tensor(named.tensor, f);
}

template <class F>
void for_each_tensor(Slice& slice, F&& f) {
  for_each_tensor(slice.values, f);
}

template <class F>
void for_each_tensor(Residual& residual, F&& f) {
  for_each_tensor(residual.values, f);
}

template <class F>
void for_each_tensor(LinkState& link, F&& f) {
  for (Tensor& tensor : link.tensors) {
    for_each_tensor(tensor, f);
  }
}

template <class T, class F>
void for_each_tensor(std::vector<T>& all, F&& f) {
  for (T& one : all) {
    for_each_tensor(one, f);
  }
}

template <class F, class... Parts>
void for_each_tensor_of(F&& f, Parts&... parts) {
  (for_each_tensor(parts, f), ...);
}

template <class F>
void for_each_tensor(GatheredBatch& made, F&& f) {
  for_each_tensor_of(f, made.x, made.target);
}

template <class F>
void for_each_tensor(ForwardPass& made, F&& f) {
  for_each_tensor_of(f, made.y, made.stash, made.buffers, made.result, made.influence);
}

template <class F>
void for_each_tensor(InputGradient& made, F&& f) {
  for_each_tensor_of(f, made.dx, made.deltas);
}

template <class F>
void for_each_tensor(WeightGradient& made, F&& f) {
  for_each_tensor(made.gradient, f);
}

template <class F>
void for_each_tensor(BackwardPass& made, F&& f) {
  for_each_tensor_of(f, made.dx, made.gradient);
}

template <class F>
void for_each_tensor(NormsMeasured& made, F&& f) {
  for_each_tensor(made.gradient, f);
}

template <class F>
void for_each_tensor(Summed& made, F&& f) {
  for_each_tensor(made.gradient, f);
}

template <class F>
void for_each_tensor(Followed& made, F&& f) {
  for_each_tensor(made.predictions, f);
}

template <class F>
void for_each_tensor(SharedRead& made, F&& f) {
  for_each_tensor(made.weights, f);
}

template <class F>
void for_each_tensor(Computed& made, F&& f) {
  for_each_tensor(made.tensors, f);
}

template <class F>
void for_each_tensor(StepMade& made, F&& f) {
  Applied& a = made.applied;
  for_each_tensor_of(f, a.next, a.predictions, a.outgoing, a.moments, a.residuals, a.links);
}

template <class F>
void for_each_tensor(CombineMade& made, F&& f) {
  Updated& u = made.updated;
  for_each_tensor_of(
      f, u.next, u.sent, u.difference, u.answers, u.predictions, u.moments, u.moved, made.link);
}

template <class F>
void for_each_tensor(RowsDone& made, F&& f) {
  for_each_tensor(made.result, f);
}

template <class F>
void for_each_tensor(RowsLooked& made, F&& f) {
  for_each_tensor(made.weights, f);
}

template <class F>
void for_each_tensor(PortionsAdded& made, F&& f) {
  for_each_tensor(made.sum, f);
}

template <class F>
void for_each_tensor(VectorsDone& made, F&& f) {
  for_each_tensor(made.vectors, f);
}

}  // namespace troupe
