// The two layers of a junction (runtime/model/width.hpp), and layers around another one; private to the folder above.
#pragma once

#include "runtime/model/layer.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// A layer that does what another one does, but for what its class says.
class LayerAround : public Layer {
 public:
  explicit LayerAround(std::shared_ptr<const Layer> layer)
      : Layer(layer->name()), layer_(std::move(layer)) {}

  std::vector<ParameterSpec> parameters() const override { return layer_->parameters(); }

  std::vector<ParameterSpec> buffers() const override { return layer_->buffers(); }

  void shapes(BundleShape& bundle) const override { layer_->shapes(bundle); }

  Flops flops() const override { return layer_->flops(); }

  bool takes_operands() const override { return layer_->takes_operands(); }

  std::int64_t saved_bytes() const override { return layer_->saved_bytes(); }

  void forward(const Pass& pass,
               Parameters w,
               LayerBuffers buffers,
               Bundle& bundle,
               Saved& saved) const override {
    layer_->forward(pass, w, buffers, bundle, saved);
  }

  void input_gradient(
      const Pass& pass, Parameters w, Saved& saved, Bundle& error, bool want_dx) const override {
    layer_->input_gradient(pass, w, saved, error, want_dx);
  }

  void weight_gradient(Stream& stream, const Saved& saved, Gradients g) const override {
    layer_->weight_gradient(stream, saved, g);
  }

 protected:
  std::shared_ptr<const Layer> layer_;
};

/// The same extents but for the last one.
Shape with_columns(const Shape& shape, std::int64_t columns);

/// The samples `rows` of x (B, ...), without a copy.
Tensor samples(const Tensor& x, const RowRange& rows);

/// The name of an entry of a bundle: a piece that is for part `part` (of it, in the gradients), or comes of it.
std::string piece_for(std::int64_t part);
std::string piece_from(std::int64_t part);

struct PieceName {
  std::int64_t part;
  bool is_for;  // the part; else it comes of it
};

/// What the two have made `name` of; nothing: it is the name of something else.
std::optional<PieceName> as_piece(std::string_view name);

/// x in pieces, one for each part: all of it where the next section has it whole, else that part's rows.
std::shared_ptr<const Layer> pieces_layer(std::string name, Holding to, WidthPart part);

/// x of the pieces of all parts, which was `from`, and is held like `to` from here on.
std::shared_ptr<const Layer> together_layer(std::string name,
                                            Held from,
                                            Holding to,
                                            WidthPart part);

/// Logits of the part's own classes become their statistics (kernels/loss.hpp); they stay beside these as kLogitsEntry, with
/// the gradients by them, which the loss makes.
inline constexpr const char* kLogitsEntry = "logits";
std::shared_ptr<const Layer> statistics_layer(std::string name, WidthPart part);

/// The part's own samples of an x that each part has.
std::shared_ptr<const Layer> own_rows_layer(std::string name, WidthPart part);

/// The layer, whose parameters all parts share.
std::shared_ptr<const Layer> shared_layer(std::shared_ptr<const Layer> layer);

}  // namespace troupe
