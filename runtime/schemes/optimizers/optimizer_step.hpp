// The arithmetic of the experiment's optimizer over the parameters of a chunk or of a server shard:
// slices in, slices out, moments in between. Both the optimizer of a replica and a server's Step are
// made of it.
#pragma once

#include "kernels/stream.hpp"
#include "runtime/schemes/optimizers/chunk_optimizer.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// Where parameters stand in flat slices. What no piece covers is padding, zero for ever.
struct SliceLayout {
  struct Piece {  // a parameter
    std::size_t slice = 0;
    std::int64_t offset = 0;  // elements into the slice
    Shape shape;
    bool matrix = false;  // of a hidden layer: OptimizerScheme::matrices moves it
    bool table = false;   // an embedding
  };

  std::vector<Piece> pieces;              // in layer order
  std::vector<std::int64_t> slice_sizes;  // elements, padding included
};

/// Not thread-safe: one call at a time, on one stream.
class OptimizerStep {
 public:
  OptimizerStep(ChunkOptimizer optimizer, SliceLayout layout);

  /// The numbers of one update.
  struct Request {
    double rate = 0;
    double next_rate = 0;        // of the update after it: predictions move by it
    double gradient_scale = 1;   // multiplies the gradient
    double clip_norm = 0;        // > 0: instead, clip by the norm of this gradient
    std::vector<Reach> reaches;  // predictions to make
  };

  struct Made {
    Weights next;                      // slices; step, version and rate are the caller's to fill in
    std::vector<Weights> predictions;  // by reach
  };

  /// The next update. Shapes: base and gradient slices of slice_sizes, float32 on the stream's device.
  /// On the CPU a slice of `base` whose handle is the last one becomes the new slice, else one of `gradient` may.
  Made apply(Stream& stream, Weights base, std::vector<Tensor> gradient, const Request& request);

  const ChunkOptimizer& optimizer() const { return optimizer_; }

  /// The tensors (slice size) that the optimizer keeps of a slice; empty before the first update. Not
  /// where it moves matrices by themselves, and keeps moments by parameter.
  std::vector<Tensor> moments(std::size_t slice) const;
  /// Puts others in their place: as many as moments() gives once it gives any.
  void set_moments(std::size_t slice, std::vector<Tensor> moments);

  /// What is kept of the parameters, whatever slices they stand in.
  struct Kept {
    using Values = std::vector<float>;
    /// By piece of the layout and kept_names(): of as many elements as the parameter has, or UpdateMethod::also
    /// says. Of a piece nothing before the first update.
    std::vector<std::vector<std::pair<std::string, Values>>> moments{};
    std::vector<Values> displacements{};  // by piece; empty: there is none
    std::int64_t updates = 0;             // that it was kept over
    double carried = 1;                   // UpdateMethod::scalars
  };

  /// Waits for it.
  Kept kept() const;
  /// Begins with what another one has kept of the same parameters. False where that keeps other things: then it is as
  /// before the first update.
  bool begin(Stream& stream, const Kept& kept);

  /// That it has made since the beginning or the last reset.
  std::int64_t updates() const { return updates_; }

  /// As before the first update: moments zero, and their bias to be corrected anew.
  void reset();

  /// Bytes of the moments and the displacement.
  std::int64_t state_bytes() const;

  /// Writes the state, or reads it back, for checkpoints.
  void archive(auto& a) { a(state_, carried_, updates_); }

 private:
  /// A part of a slice that is moved at once, padding included: the whole slice, or, where matrices
  /// are moved by themselves, one parameter.
  struct Stretch {
    std::size_t slice;
    std::int64_t offset;               // elements into the slice
    std::int64_t size;                 // elements
    Shape matrix;                      // (rows, columns); of no dimensions where it is none
    std::vector<std::int64_t> ends{};  // of its ranges that weight decay treats alike
    std::vector<bool> decays{};        // by range
  };

  /// What is kept of one stretch; empty until the first update.
  struct State {
    std::vector<Tensor> moments;
    Tensor displacement;
  };

  std::size_t stretch_of(const SliceLayout::Piece& piece) const;
  std::vector<std::string> names_of(const Stretch& part) const;
  static std::vector<Stretch> stretches(bool matrices, const SliceLayout& layout);
  void divide(Stretch& part) const;
  std::vector<std::int64_t> also_kept(const Stretch& part) const;
  const UpdateMethod& method_of(const Stretch& part) const;
  State& state_at(Stream& stream, std::size_t index);
  Tensor place_of_next(Stream& stream, const Tensor& w, const Tensor& g) const;
  void update_stretch(Stream& stream,
                      std::size_t index,
                      const UpdateNumbers& numbers,
                      const UpdateScalars& scalars,
                      const UpdateTensors& tensors,
                      const std::vector<Prediction>& predictions);
  void update_range(Stream& stream,
                    const UpdateMethod& method,
                    const UpdateNumbers& numbers,
                    const UpdateScalars& scalars,
                    const UpdateTensors& tensors,
                    const Tensor& displacement,
                    std::vector<Prediction> predictions) const;
  void update_by_function(Stream& stream,
                          const UpdateMethod& method,
                          const UpdateNumbers& numbers,
                          const UpdateTensors& tensors,
                          const Tensor& displacement,
                          const std::vector<Prediction>& predictions) const;
  Tensor move_before(Stream& stream, std::size_t index);
  void feed_back(Stream& stream, std::size_t index, const Tensor& before, const Tensor& w_new);
  void check_by_slice() const;

  ChunkOptimizer optimizer_;
  SliceLayout layout_;
  std::vector<Stretch> stretches_;
  std::vector<State> state_;  // by stretch
  double carried_ = 1;        // UpdateMethod::scalars
  std::int64_t updates_ = 0;
};

/// Sums of squares of each parameter, in layer order.
std::vector<double> sums_of_squares(Stream& stream,
                                    const SliceLayout& layout,
                                    const std::vector<Tensor>& slices);

/// What a gradient whose squares sum to `squares` is multiplied by so that its norm is at most
/// `clip_norm`: PyTorch's formula.
double clip_factor(double clip_norm, double squares);

}  // namespace troupe
