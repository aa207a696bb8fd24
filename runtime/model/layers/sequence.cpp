// Layers over sequences: (T) tokens or (T, C) features a sample.
#include "kernels/attention.hpp"
#include "kernels/convert.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/embedding.hpp"
#include "kernels/rotary.hpp"
#include "runtime/model/layers.hpp"

#include <utility>

namespace troupe {
namespace {

class Embedding final : public PlainLayer {
 public:
  Embedding(std::string name, const EmbeddingOptions& options)
      : PlainLayer(std::move(name)), o_(options), parameters_(whole_parameters()) {}

  /// A part of it, with the table's rows from `first` on.
  Embedding(std::string name,
            const EmbeddingOptions& options,
            std::vector<ParameterSpec> parameters,
            std::int64_t first)
      : PlainLayer(std::move(name)),
        o_(options),
        parameters_(std::move(parameters)),
        first_(first) {}

  std::vector<ParameterSpec> parameters() const override { return parameters_; }

  std::vector<ParameterSpec> whole_parameters() const {
    std::vector<ParameterSpec> all{{.name = o_.weight.empty() ? name() + ".weight" : o_.weight,
                                    .shape = {o_.vocabulary, o_.width},
                                    .initial = Initial::normal,
                                    .deviation = o_.deviation,
                                    .tied = o_.tied,
                                    .table = true}};
    if (o_.positions) {
      all.push_back(
          {.name = o_.position_weight.empty() ? name() + ".positions" : o_.position_weight,
           .shape = {o_.length, o_.width},
           .initial = Initial::normal,
           .deviation = o_.deviation,
           .table = true});
    }
    return all;
  }

  Shape output_shape() const override { return {o_.length, o_.width}; }

  /// Its own rows of the table; the positions are in the first part's summand.
  std::optional<LayerPart> part(const Held& in, const WidthPart& part) const override {
    if (in.holding != Holding::whole || o_.vocabulary < part.parts) {
      return {};
    }
    const RowRange rows = rows_of(o_.vocabulary, part);
    EmbeddingOptions own = o_;
    own.vocabulary = rows.count;
    own.positions = o_.positions && part.rank == 0;
    std::vector<ParameterSpec> pieces{
        piece_of(parameters_[0], {rows.count, o_.width}, 1, {o_.vocabulary}, o_.width, part)};
    if (own.positions) {
      pieces.push_back(parameters_[1]);
    }
    return LayerPart{
        .layer = std::make_shared<Embedding>(name(), own, std::move(pieces), rows.first),
        .out = Holding::sum};
  }

  Flops flops() const override {
    const auto n = static_cast<double>(o_.length * o_.width);
    return {n, 0, n};
  }

  std::int64_t saved_bytes() const override { return 4 * o_.length * (1 + o_.width); }

  Tensor transform(
      const Pass& pass, Parameters w, LayerBuffers, const Tensor& x, Saved& saved) const override {
    const std::int64_t batch = x.shape()[0];
    const Tensor ids = x.reshape({batch, o_.length});
    const Tensor y = pass.stream.allocate({batch, o_.length, o_.width});
    embedding_forward(pass.stream, ids, w[0], o_.positions ? w[1] : Tensor{}, y, first_);
    saved = {ids};
    return y;
  }

  Tensor transform_gradient(const Pass&, Parameters, Saved& saved, Tensor dy, bool) const override {
    saved.push_back(dy.reshape({dy.shape()[0], o_.length, o_.width}));
    return {};  // tokens have no gradient
  }

  void weight_gradient(Stream& stream, const Saved& saved, Gradients g) const override {
    const Tensor positions = o_.positions ? g[1].to : Tensor{};
    if (o_.positions && g[0].accumulate != g[1].accumulate) {
      TROUPE_CHECK(g[0].accumulate, "the positions have gradients that the table has not");
      fill(stream, positions, 0);  // the tied table has gradients already, the positions have none
    }
    embedding_gradient(stream, saved[0], saved[1], g[0].to, positions, g[0].accumulate, first_);
  }

 private:
  EmbeddingOptions o_;
  std::vector<ParameterSpec> parameters_;
  std::int64_t first_ = kWholeTable;
};

class Attention final : public PlainLayer {
 public:
  Attention(std::string name, const AttentionOptions& options)
      : PlainLayer(std::move(name)), o_(options) {}

  Shape output_shape() const override { return {o_.length, o_.width}; }

  /// Its own heads.
  std::optional<LayerPart> part(const Held& in, const WidthPart& part) const override {
    const bool even = part.divides(o_.heads) && part.divides(o_.kv_heads);
    if (in.holding != Holding::columns || in.groups != o_.groups() || !even) {
      return {};
    }
    AttentionOptions own = o_;
    own.width /= part.parts;
    own.heads /= part.parts;
    own.kv_heads /= part.parts;
    return LayerPart{.layer = std::make_shared<Attention>(name(), own), .out = Holding::columns};
  }

  Flops flops() const override {
    // Two products of (T, T) by the width, of which the mask leaves a half; five backward.
    const std::int64_t keys = o_.causal ? o_.length + 1 : 2 * o_.length;
    const auto half = static_cast<double>(o_.length * keys * o_.width);
    return {2 * half, 5 * half, 0};
  }

  bool takes_operands() const override { return true; }

  std::int64_t saved_bytes() const override {
    return 4 * o_.length * (o_.columns() + o_.width + o_.heads);
  }

  Tensor transform(
      const Pass& pass, Parameters, LayerBuffers, const Tensor& x, Saved& saved) const override {
    const std::int64_t batch = x.shape()[0];
    Tensor qkv = operand(pass.stream, x.reshape({batch, o_.length, o_.columns()}));
    if (o_.rotary > 0) {
      const Tensor turned = pass.stream.allocate(qkv.shape(), qkv.type());
      rotary(pass.stream, positions(false), qkv, turned);
      qkv = turned;
    }
    const Tensor y = pass.stream.allocate({batch, o_.length, o_.width}, qkv.type());
    const Tensor log_sum = pass.stream.allocate({batch, o_.heads, o_.length});
    attention_forward(pass.stream, form(), qkv, y, log_sum);
    saved = {qkv, y, log_sum};
    return y;
  }

  Tensor transform_gradient(
      const Pass& pass, Parameters, Saved& saved, Tensor dy, bool want_dx) const override {
    Tensor dqkv;
    if (want_dx) {
      dqkv = pass.stream.allocate(saved[0].shape(), saved[0].type());
      attention_backward(pass.stream,
                         {.form = form(),
                          .qkv = saved[0],
                          .y = saved[1],
                          .log_sum = saved[2],
                          .dy = dy.reshape(saved[1].shape()),
                          .dqkv = dqkv});
      if (o_.rotary > 0) {
        rotary(pass.stream, positions(true), dqkv, dqkv);
      }
    }
    saved.clear();
    return dqkv;
  }

 private:
  AttentionForm form() const { return {o_.heads, o_.kv_heads, o_.causal}; }

  /// Of q and k.
  Rotary positions(bool back) const {
    return {.heads = o_.heads + form().key_heads(),
            .head_size = o_.width / o_.heads,
            .theta = o_.rotary,
            .back = back};
  }

  AttentionOptions o_;
};

}  // namespace

std::shared_ptr<const Layer> embedding_layer(std::string name, const EmbeddingOptions& options) {
  return std::make_shared<Embedding>(std::move(name), options);
}

std::shared_ptr<const Layer> attention_layer(std::string name, const AttentionOptions& options) {
  return std::make_shared<Attention>(std::move(name), options);
}

}  // namespace troupe
