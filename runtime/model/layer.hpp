// A layer is three pure functions of its weights w. A bundle is the activation "x" and, behind it, the skip connections that
// are open there, so that a network may be cut between any two layers into chunks (consecutive layers). `error` is a bundle
// of gradients by these tensors.
//
//   forward(w, bundle) -> bundle, saved
//   input_gradient(w, saved, error) -> error, saved
//   weight_gradient(saved) -> g
//
// A backward is input_gradient and then weight_gradient. They are apart because zero-bubble schedules run them at different
// times. input_gradient may be given other weights than forward was, and drops from `saved` what weight_gradient does not
// need. A layer object has shapes and no tensors; all threads share it.
#pragma once

#include "kernels/activation.hpp"
#include "kernels/stream.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// The initial values of a parameter. The CPU draws them by seed and name, so that they do not depend on the cut into chunks
/// or on the device.
enum class Initial : std::uint8_t {
  uniform_fan_in,  // U(-1, 1) / sqrt(fan in): PyTorch's default for weights and biases
  lecun_normal,    // N(0, 1 / fan in)
  he_normal,       // N(0, 2 / fan in)
  normal,          // N(0, deviation^2)
  zero,
  one,
};

/// In which order a file of weights has the elements of a parameter, which is PyTorch's (runtime/checkpoint/weights.hpp).
enum class FileOrder : std::uint8_t {
  as_in_memory,
  filters,   // of a convolution: (O, C, kh, kw); in memory (O, kh, kw, C)
  flattens,  // (out, in) of a layer that flattens an image: `in` is C H W; in memory H W C
};

struct Piece;

struct ParameterSpec {
  std::string name{};  // "dense1.weight": does not depend on the cut into chunks
  Shape shape{};
  Initial initial = Initial::zero;
  std::int64_t fan_in = 1;
  double deviation = 0;  // Initial::normal
  bool matrix = false;   // a hidden layer's matrix (shape[0], rest), which muon orthogonalises
  /// Another layer has the same parameter under the same name, and their gradients are added up. Each layer that shares it
  /// says so.
  bool tied = false;
  bool table = false;  // an embedding, whose rows are looked up
  FileOrder order = FileOrder::as_in_memory;
  std::shared_ptr<const Piece>
      piece{};  // the part of a parameter that is cut in width; null: all of it

  /// The name of the whole parameter, which files have.
  const std::string& whole_name() const;
};

/// What one part has of a parameter when a chunk is cut in width (runtime/model/width.hpp). The whole parameter is seen as a
/// tensor (outer, sum of groups, inner). The part has its share, rows_of(), of each group, one group after the other.
struct Piece {
  ParameterSpec of;  // the whole parameter
  std::int64_t outer = 1;
  std::vector<std::int64_t> groups;
  std::int64_t inner = 1;
  std::int64_t rank = 0;   // of the part
  std::int64_t parts = 1;  // how many there are
};

using Parameters = std::span<const Tensor>;  // one tensor for each ParameterSpec, in their order
using Saved = std::vector<Tensor>;
using LayerBuffers = std::span<Tensor>;  // one tensor for each of Layer::buffers()

/// Where the gradient of a parameter is written.
struct Gradient {
  Tensor to;
  bool accumulate = false;  // add to what is there
};

using Gradients = std::span<const Gradient>;  // one for each ParameterSpec

/// FLOPs of one sample.
struct Flops {
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;

  double total() const { return forward + input_gradient + weight_gradient; }
};

/// What a layer knows besides its weights and its input.
struct Pass {
  Stream& stream;
  bool training = true;  // dropout, and statistics of this micro-batch; else those in the buffers
  std::uint64_t seed = 0;
  /// Samples of the run before this micro-batch. Random numbers are drawn by sample: they do not depend on how mini-batches
  /// are cut, and a recomputed forward draws the same ones.
  std::int64_t first_sample = 0;
};

/// The shape of one sample of an entry of a bundle.
struct NamedShape {
  std::string name;
  Shape shape;
  std::int64_t share = 1;  // the samples are shared by so many parts
};

using BundleShape = std::vector<NamedShape>;

/// How the parts of a chunk that is cut in width hold an activation (runtime/model/width.hpp). They hold its gradient likewise;
/// but where each part has the whole activation, each has a summand of the gradient.
enum class Holding : std::uint8_t {
  whole,    // each part has all of it
  rows,     // each part has its own samples
  columns,  // each part has its own share of the last dimension
  sum,      // each part has a summand
};

/// One of the `parts` that work on a chunk together.
struct WidthPart {
  std::int64_t rank = 0;
  std::int64_t parts = 1;

  /// Whether all parts can have equally many of `all`.
  bool divides(std::int64_t all) const { return all % parts == 0; }
};

/// A part's share of samples, or of classes.
struct RowRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// The share that `part` has of `all`; shares differ by at most one.
RowRange rows_of(std::int64_t all, const WidthPart& part);

/// An activation that parts hold.
struct Held {
  Shape whole;  // of a sample, all parts together
  Holding holding = Holding::whole;
  /// Of columns: the sizes of the groups in the last dimension. Each part has its share of each group, one after the
  /// other. Empty: one group.
  std::vector<std::int64_t> groups{};
  /// Where the layer closes a skip connection, which is held alike: the skip's groups.
  std::vector<std::int64_t> skip_groups{};
};

class Layer;

/// What one part computes of a layer.
struct LayerPart {
  std::shared_ptr<const Layer>
      layer{};                         // null: the layer as it is, whose parameters all parts share
  Holding out = Holding::rows;         // how the parts hold its output
  std::vector<std::int64_t> groups{};  // of its output, as Held::groups
  std::shared_ptr<const Layer>
      behind{};  // where the output is summands: the layer that their sum goes through, by rows
  bool swaps = false;  // x and the skip connection change places, however each is held
};

class Layer {
 public:
  explicit Layer(std::string name) : name_(std::move(name)) {}

  virtual ~Layer() = default;

  const std::string& name() const { return name_; }

  virtual std::vector<ParameterSpec> parameters() const { return {}; }

  /// State that has no gradient (running statistics): float32; a training forward replaces it, any other reads it.
  virtual std::vector<ParameterSpec> buffers() const { return {}; }

  /// Turns the shapes of its input bundle into those of its output bundle.
  virtual void shapes(BundleShape& bundle) const = 0;

  virtual Flops flops() const { return {}; }

  /// Whether its inputs (activations, and gradients by its outputs) may have the stream's operand_type(); else they are
  /// float32. Its outputs may have either type.
  virtual bool takes_operands() const { return false; }

  /// The name of the skip connection that it opens, closes or works on; "": none.
  virtual std::string skip() const { return ""; }

  /// Whether it closes it, and so makes one activation of two.
  virtual bool closes_skip() const { return false; }

  /// What `part` computes of this layer if the parts hold its input like `in`. Nothing: the layer cannot be cut so.
  virtual std::optional<LayerPart> part(const Held& /*in*/, const WidthPart& /*part*/) const {
    return {};
  }

  /// Bytes that are kept from forward to backward for each sample.
  virtual std::int64_t saved_bytes() const = 0;

  /// Replaces its inputs in `bundle`, tensors (B, ...), by its outputs, and fills `saved`. In training, also replaces the
  /// tensors in `buffers`.
  virtual void forward(
      const Pass& pass, Parameters w, LayerBuffers buffers, Bundle& bundle, Saved& saved) const = 0;

  /// Replaces the gradients by its outputs in `error` by those by its inputs; if `want_dx` is false, that of "x" may become
  /// empty. Leaves in `saved` what weight_gradient needs. May overwrite gradients that no other handle shares
  /// (Tensor::exclusive).
  virtual void input_gradient(
      const Pass& pass, Parameters w, Saved& saved, Bundle& error, bool want_dx) const = 0;

  /// Writes or adds the gradient of each parameter; a layer without parameters does nothing.
  virtual void weight_gradient(Stream& /*stream*/, const Saved& /*saved*/, Gradients /*g*/) const {}

 private:
  std::string name_;
};

/// A layer that turns "x" into y and leaves the rest of the bundle alone.
class PlainLayer : public Layer {
 public:
  using Layer::Layer;

  virtual Shape output_shape() const = 0;  // of a sample

  /// x (B, ...) -> y (B, output_shape()).
  virtual Tensor transform(const Pass& pass,
                           Parameters w,
                           LayerBuffers buffers,
                           const Tensor& x,
                           Saved& saved) const = 0;

  /// dy -> dx, the gradients by y and x; may be empty if `want_dx` is false.
  virtual Tensor transform_gradient(
      const Pass& pass, Parameters w, Saved& saved, Tensor dy, bool want_dx) const = 0;

  void shapes(BundleShape& bundle) const override;
  void forward(const Pass& pass,
               Parameters w,
               LayerBuffers buffers,
               Bundle& bundle,
               Saved& saved) const final;
  void input_gradient(
      const Pass& pass, Parameters w, Saved& saved, Bundle& error, bool want_dx) const final;
};

/// The spec of the piece, with this shape, that `part` has of a parameter (Piece).
ParameterSpec piece_of(const ParameterSpec& whole,
                       const Shape& shape,
                       std::int64_t outer,
                       std::vector<std::int64_t> groups,
                       std::int64_t inner,
                       const WidthPart& part);

/// Copies the elements of a piece from those of the whole parameter.
std::vector<float> piece_values(const ParameterSpec& piece, std::span<const float> whole);

/// Writes the elements of a piece, `own`, to where they belong in the whole parameter.
void put_piece(const ParameterSpec& piece, std::span<const float> own, std::span<float> whole);

/// The shape of a sample with the part's share of the last dimension.
Shape columns_of(const Shape& whole, const WidthPart& part);

/// The shape (rows, sample...).
Shape with_batch(std::int64_t rows, const Shape& sample);

/// dy * f', in place if no other handle shares dy. `saved`: as activation_backward() (kernels/activation.hpp) needs it.
Tensor through_activation(Stream& stream, ActivationKind kind, const Tensor& saved, Tensor dy);

}  // namespace troupe
