// Layers are pure functions of explicit weights, in three parts:
//
//   forward(w, bundle) -> bundle, saved
//   input_gradient(w, saved, error) -> error, saved
//   weight_gradient(saved) -> g
//
// What weight_gradient does not need is released by input_gradient. The usual backward is their
// composition. This one split serves zero-bubble schedules, stale weights and reconstructed ones:
// input_gradient may be given other weights than forward was. Layers hold shapes and no tensors;
// one object serves all threads.
//
// A layer works on the bundle that a cut could send: the activation "x" comes first, open skip
// connections stand beside it. So a network may be cut between any two layers.
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

/// How a parameter starts. Numbers come from the host, keyed by seed and name: the same for every
/// cut and backend.
enum class Initial : std::uint8_t {
  uniform_fan_in,  // U(-1, 1) / sqrt(fan in): PyTorch's default for weights and biases
  lecun_normal,    // N(0, 1 / fan in)
  he_normal,       // N(0, 2 / fan in)
  normal,          // N(0, deviation^2)
  zero,
  one,
};

/// In which order a file of weights has the elements of a parameter (runtime/checkpoint/weights.hpp).
enum class FileOrder : std::uint8_t {
  as_here,
  filters,  // (O, kh, kw, C) here, PyTorch's (O, C, kh, kw) there
  flattens,  // (out, in) of a layer that flattens its input; of an image (H, W, C) there (out, C H W)
};

struct Piece;

struct ParameterSpec {
  std::string name{};  // "dense1.weight": independent of the cut in depth
  Shape shape{};
  Initial initial = Initial::zero;
  std::int64_t fan_in = 1;
  double deviation = 0;  // Initial::normal
  bool matrix = false;   // a hidden layer's matrix: what muon orthogonalises, as (shape[0], rest)
  /// Read by a layer of another name too, under this same name: one parameter, whose gradients are
  /// added up. All that share it say so.
  bool tied = false;
  bool table = false;  // an embedding: its rows are looked up
  FileOrder order = FileOrder::as_here;
  std::shared_ptr<const Piece> piece{};  // of a parameter that is cut in width; null: all of it

  /// Of the whole parameter: as files have it.
  const std::string& whole_name() const;
};

/// What one part has of a parameter that is cut in width. The whole parameter is seen as (outer, sum of groups, inner),
/// and of each group the part has its share, rows_of(), one group behind the other.
struct Piece {
  ParameterSpec of;  // the whole one
  std::int64_t outer = 1;
  std::vector<std::int64_t> groups;
  std::int64_t inner = 1;
  std::int64_t rank = 0;
  std::int64_t parts = 1;
};

using Parameters = std::span<const Tensor>;  // one tensor a ParameterSpec, in that order
using Saved = std::vector<Tensor>;
using LayerBuffers = std::span<Tensor>;  // one tensor a spec of Layer::buffers()

/// Where a parameter's gradient goes.
struct Gradient {
  Tensor to;
  bool accumulate = false;  // add to what is there
};

using Gradients = std::span<const Gradient>;  // one a ParameterSpec

/// FLOPs of one sample.
struct Flops {
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;

  double total() const { return forward + input_gradient + weight_gradient; }
};

/// What a layer may know besides weights and data.
struct Pass {
  Stream& stream;
  bool training = true;  // statistics of this micro-batch, dropout; else what the buffers say
  std::uint64_t seed = 0;
  /// Samples of the run before this micro-batch: keys randomness by sample, so that it does not
  /// depend on how mini-batches are cut, and a recomputed forward meets the same.
  std::int64_t first_sample = 0;
};

/// Shapes of one sample, by entry of the bundle.
struct NamedShape {
  std::string name;
  Shape shape;
  std::int64_t share = 1;  // of so many parts, each of which has as many of the samples
};

using BundleShape = std::vector<NamedShape>;

/// How the parts of a chunk that is cut in width hold an activation between two layers (runtime/model/width.hpp). The
/// gradients by it are spread likewise, but for `whole`: there each part has a summand of them.
enum class Holding : std::uint8_t {
  whole,    // each part has all of it
  rows,     // each part has its own samples
  columns,  // each part has its own share of the last dimension
  sum,      // each part has a summand
};

/// One of `parts` that work on a chunk together.
struct WidthPart {
  std::int64_t rank = 0;
  std::int64_t parts = 1;

  /// Whether each part can have the same number of `all`.
  bool divides(std::int64_t all) const { return all % parts == 0; }
};

/// What a part has of `all` samples, or classes: as equal a share as there is.
struct RowRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

RowRange rows_of(std::int64_t all, const WidthPart& part);

/// An activation as the parts have it.
struct Held {
  Shape whole;  // of a sample, were it in one place
  Holding spread = Holding::whole;
  /// Of columns: the last dimension is so many groups, and each part has its share of each, one behind the other. Empty:
  /// it is one.
  std::vector<std::int64_t> groups{};
};

class Layer;

/// What a part makes of a layer.
struct LayerPart {
  std::shared_ptr<const Layer>
      layer{};                         // null: the layer as it is, whose parameters all parts share
  Holding out = Holding::rows;         // what comes of it
  std::vector<std::int64_t> groups{};  // ... as Held::groups
  std::shared_ptr<const Layer>
      behind{};  // of a sum: what is made of it once it is added up and spread by rows
};

class Layer {
 public:
  explicit Layer(std::string name) : name_(std::move(name)) {}

  virtual ~Layer() = default;

  const std::string& name() const { return name_; }

  virtual std::vector<ParameterSpec> parameters() const { return {}; }

  /// State that no gradient drives (running statistics): float32, replaced by each training
  /// forward, read by every other.
  virtual std::vector<ParameterSpec> buffers() const { return {}; }

  /// Turns the shapes before this layer into those after it.
  virtual void shapes(BundleShape& bundle) const = 0;

  virtual Flops flops() const { return {}; }

  /// Whether what comes in (activations, and the gradients by its outputs) may be of the stream's operand_type(): else it is
  /// float32. What goes out may be of either.
  virtual bool takes_operands() const { return false; }

  /// The skip connection that it opens, closes or works on; "": none.
  virtual std::string skip() const { return ""; }

  /// What `part` makes of it where what it works on is held like `in`. Nothing: it is not made for that.
  virtual std::optional<LayerPart> part(const Held& /*in*/, const WidthPart& /*part*/) const {
    return {};
  }

  /// Bytes kept from forward to backward, of one sample.
  virtual std::int64_t saved_bytes() const = 0;

  /// Replaces what it works on in `bundle`; each tensor (B, ...). Fills `saved`. In training,
  /// replaces the tensors in `buffers`.
  virtual void forward(
      const Pass& pass, Parameters w, LayerBuffers buffers, Bundle& bundle, Saved& saved) const = 0;

  /// Turns the gradients by its outputs into those by its inputs; where `want_dx` is false "x" may
  /// become empty. Leaves in `saved` what weight_gradient needs. May write into gradients that are
  /// exclusive.
  virtual void input_gradient(
      const Pass& pass, Parameters w, Saved& saved, Bundle& error, bool want_dx) const = 0;

  /// One Gradient a parameter; of a layer without parameters there is nothing to do.
  virtual void weight_gradient(Stream& /*stream*/, const Saved& /*saved*/, Gradients /*g*/) const {}

 private:
  std::string name_;
};

/// A layer that turns x into y and looks at nothing else.
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

  /// dy -> dx; an empty tensor where `want_dx` is false.
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

/// `part`'s piece of a parameter, of this shape.
ParameterSpec piece_of(const ParameterSpec& whole,
                       const Shape& shape,
                       std::int64_t outer,
                       std::vector<std::int64_t> groups,
                       std::int64_t inner,
                       const WidthPart& part);

/// The elements that a piece has of the whole parameter's.
std::vector<float> piece_values(const ParameterSpec& piece, std::span<const float> whole);

/// ... put where they belong in the whole parameter's.
void put_piece(const ParameterSpec& piece, std::span<const float> own, std::span<float> whole);

/// A sample's shape with the part's share of the last dimension.
Shape columns_of(const Shape& whole, const WidthPart& part);

/// (rows, sample...).
Shape with_batch(std::int64_t rows, const Shape& sample);

/// dy * f' in place where nobody else holds dy; `saved` as activation_backward wants it.
Tensor through_activation(Stream& stream, ActivationKind kind, const Tensor& saved, Tensor dy);

}  // namespace troupe
