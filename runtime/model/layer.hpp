// Layers are pure functions of explicit weights, in three parts:
//
//   forward(w, x) -> y, saved
//   input_gradient(w, saved, dy) -> dx, saved
//   weight_gradient(saved) -> g
//
// What weight_gradient does not need is released by input_gradient. The usual backward is their
// composition. This one split serves zero-bubble schedules, stale weights and reconstructed ones:
// input_gradient may be given other weights than forward was. Layers hold shapes and no tensors;
// one object serves all threads.
#pragma once

#include "kernels/activation.hpp"
#include "kernels/convolution.hpp"
#include "kernels/stream.hpp"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// How a parameter starts. Numbers come from the host, keyed by seed and name: the same for every
/// cut and backend.
enum class Initial : std::uint8_t {
  uniform_fan_in,  // U(-1, 1) / sqrt(fan in): PyTorch's default for weights and biases
  lecun_normal,    // N(0, 1 / fan in)
  zero,
  one,
};

struct ParameterSpec {
  std::string name;  // "dense1.weight": independent of the cut
  Shape shape;
  Initial initial = Initial::zero;
  std::int64_t fan_in = 1;
};

using Parameters = std::span<const Tensor>;  // one tensor a ParameterSpec, in that order
using Saved = std::vector<Tensor>;

/// FLOPs of one sample.
struct Flops {
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;

  double total() const { return forward + input_gradient + weight_gradient; }
};

class Layer {
 public:
  explicit Layer(std::string name) : name_(std::move(name)) {}

  virtual ~Layer() = default;

  const std::string& name() const { return name_; }

  virtual std::vector<ParameterSpec> parameters() const = 0;
  virtual Shape output_shape() const = 0;  // of a sample
  virtual Flops flops() const = 0;
  /// Bytes kept from forward to backward, of one sample.
  virtual std::int64_t saved_bytes() const = 0;

  /// x (B, ...) -> y (B, output_shape()). Fills `saved`.
  virtual Tensor forward(Stream& stream, Parameters w, const Tensor& x, Saved& saved) const = 0;

  /// dy -> dx; an empty tensor where `want_dx` is false. Leaves in `saved` what weight_gradient
  /// needs. May write into dy where dy is exclusive.
  virtual Tensor input_gradient(
      Stream& stream, Parameters w, Saved& saved, Tensor dy, bool want_dx) const = 0;

  /// g = or += the gradients, one tensor a parameter.
  virtual void weight_gradient(Stream& stream,
                               const Saved& saved,
                               Parameters g,
                               bool accumulate) const = 0;

 private:
  std::string name_;
};

/// y = act(x W^T + b); x of any shape with `inputs` elements a sample.
std::shared_ptr<const Layer> dense_layer(std::string name,
                                         std::int64_t inputs,
                                         std::int64_t outputs,
                                         ActivationKind activation,
                                         Initial initial);

/// y = pool(act(conv(x, w) + b)), NHWC; pool: side of non-overlapping max-pooling windows, 1 for
/// none.
struct ConvolutionLayerOptions {
  Shape input;  // (H, W, C)
  std::int64_t outputs = 1;
  ConvolutionGeometry geometry;
  ActivationKind activation = ActivationKind::none;
  std::int64_t pool = 1;
};

std::shared_ptr<const Layer> convolution_layer(std::string name,
                                               const ConvolutionLayerOptions& options);

/// y = x + 1/2 sum_i lambda_i w_i^2 on a column x (B, 1): the loss of a separable quadratic, one
/// block a layer. Its gradient lambda w is taken at the weights of the forward. CPU only.
std::shared_ptr<const Layer> quadratic_layer(std::string name, std::vector<double> curvatures);

}  // namespace troupe
