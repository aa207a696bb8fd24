// A network of one's own, layer by layer (model.layers).
#include "experiment/custom.pb.h"
#include "experiment/model.pb.h"
#include "kernels/wording.hpp"
#include "runtime/model/registry.hpp"
#include "runtime/model/zoo/parts.hpp"

#include <limits>
#include <utility>

namespace troupe::zoo {
namespace {

ActivationKind kind_of(proto::LayerActivation::Kind kind) {
  return activation_named(proto::LayerActivation::Kind_Name(kind));
}

/// Adds the user's list, layer by layer; `name` is a layer's place in it.
class LayerList {
 public:
  LayerList(Network& network, std::int64_t outputs) : network_(network), outputs_(outputs) {}

  Result<void> add(const proto::LayerSpec& spec, const std::string& name) {
    name_ = name;
    switch (spec.kind_case()) {
      case proto::LayerSpec::kDense:
        return dense(spec.dense());
      case proto::LayerSpec::kConvolution:
        return convolution(spec.convolution());
      case proto::LayerSpec::kBatchNorm:
        return put(batch_norm_layer(name_, shape(), ActivationKind::none));
      case proto::LayerSpec::kGroupNorm:
        return group_norm(spec.group_norm());
      case proto::LayerSpec::kLayerNorm:
        return put(layer_norm_layer(name_, shape()));
      case proto::LayerSpec::kActivation:
        return put(activation_layer(name_, shape(), kind_of(spec.activation().kind())));
      case proto::LayerSpec::kMaxPool:
        return pool(spec.max_pool(), max_pool_layer);
      case proto::LayerSpec::kAveragePool:
        return pool(spec.average_pool(), average_pool_layer);
      case proto::LayerSpec::kDropout:
        return put(dropout_layer(name_, shape(), spec.dropout().rate()));
      case proto::LayerSpec::kEmbedding:
        return embedding(spec.embedding());
      case proto::LayerSpec::kAttention:
        return attention(spec.attention());
      case proto::LayerSpec::kLstm:
        return lstm(spec.lstm());
      case proto::LayerSpec::kFork:
        return fork(spec.fork());
      case proto::LayerSpec::kJoin:
        return join(spec.join());
      case proto::LayerSpec::kRmsNorm:
        return put(rms_norm_layer(name_, shape()));
      case proto::LayerSpec::kSwiglu:
        return swiglu(spec.swiglu());
      case proto::LayerSpec::kMixture:
        return mixture(spec.mixture());
      case proto::LayerSpec::kConcatenate:
        return concatenate(spec.concatenate());
      case proto::LayerSpec::kSwap:
        return swap(spec.swap());
      case proto::LayerSpec::kUpsample:
        return upsample();
      case proto::LayerSpec::kCustom:
        return custom(spec.custom());
      case proto::LayerSpec::KIND_NOT_SET:
        break;
    }
    return wrong("names no layer");
  }

  /// A last word once the list has ended.
  Result<void> close() {
    if (network_.layers.empty()) {
      return refused("layers: the list is empty");
    }
    return {};
  }

 private:
  const Shape& shape() const { return network_.shape(); }

  Error wrong(const std::string& what) const { return refused("layers." + name_ + ": " + what); }

  Result<void> put(std::shared_ptr<const Layer> layer) {
    if (waits_for_embedding()) {
      return wrong("the data's samples are tokens, begin with embedding {}");
    }
    network_.add(std::move(layer));
    return {};
  }

  bool waits_for_embedding() const { return network_.tokens && network_.layers.empty(); }

  bool is_image() const { return shape().dimensions() == 3; }

  bool is_sequence() const { return shape().dimensions() == 2; }

  Result<void> dense(const proto::DenseSpec& spec) {
    return put(dense_layer(name_,
                           {.inputs = is_sequence() ? shape()[1] : shape().elements(),
                            .outputs = spec.outputs() > 0 ? spec.outputs() : outputs_,
                            .activation = kind_of(spec.activation()),
                            .positions = is_sequence() ? shape()[0] : 0,
                            .head = spec.outputs() == 0}));
  }

  Result<void> convolution(const proto::ConvolutionSpec& spec) {
    const ConvolutionGeometry geometry{
        .kernel = spec.kernel(), .stride = spec.stride(), .padding = spec.padding()};
    TROUPE_TRY(check_windows(geometry));
    return put(convolution_layer(name_,
                                 {.input = shape(),
                                  .outputs = spec.outputs(),
                                  .geometry = geometry,
                                  .activation = kind_of(spec.activation())}));
  }

  Result<void> check_windows(const ConvolutionGeometry& g) const {
    if (!is_image()) {
      return wrong(concat("needs images (H, W, C), and gets ", shape()));
    }
    if (g.padding >= g.kernel || shape()[0] + 2 * g.padding < g.kernel ||
        shape()[1] + 2 * g.padding < g.kernel) {
      return wrong(fill_in("a window of {} with padding {} does not fit images of {}",
                           g.kernel,
                           g.padding,
                           shape()));
    }
    return {};
  }

  /// Each doubles rows and columns, so that a few dozen would make more numbers than can be counted.
  Result<void> upsample() {
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();  // 8 GiB a sample
    if (!is_image()) {
      return wrong(concat("needs images (H, W, C), and gets ", shape()));
    }
    if (shape().elements() > kMost / 4) {
      return wrong(fill_in(
          "four times the {} numbers of {} are more than {}", shape().elements(), shape(), kMost));
    }
    return put(upsample_layer(name_, shape()));
  }

  template <class Make>
  Result<void> pool(const proto::PoolSpec& spec, Make make) {
    if (spec.kernel() == 0 && is_image() && shape()[0] != shape()[1]) {
      return wrong(concat("the image is not square: ", shape()));
    }
    const std::int64_t kernel = spec.kernel() > 0 ? spec.kernel() : shape()[0];
    const ConvolutionGeometry geometry{.kernel = kernel,
                                       .stride = spec.stride() > 0 ? spec.stride() : kernel};
    TROUPE_TRY(check_windows(geometry));
    return put(make(name_, shape(), geometry));
  }

  Result<void> group_norm(const proto::GroupNormSpec& spec) {
    if (shape().back() % spec.groups() != 0) {
      return wrong(
          concat("groups: ", spec.groups(), " does not divide ", shape().back(), " channels"));
    }
    return put(group_norm_layer(name_, shape(), spec.groups()));
  }

  Result<void> embedding(const proto::EmbeddingSpec& spec) {
    if (!waits_for_embedding()) {
      return wrong("can only come first, on tokens");
    }
    network_.add(embedding_layer(name_,
                                 {.vocabulary = outputs_,
                                  .length = shape()[0],
                                  .width = spec.width(),
                                  .positions = spec.positions()}));
    return {};
  }

  Result<void> attention(const proto::AttentionSpec& spec) {
    if (!is_sequence() || shape()[1] % spec.heads() != 0) {
      return wrong(fill_in("needs a sequence (T, width) whose width {} divides, and gets {}",
                           spec.heads(),
                           shape()));
    }
    if (spec.kv_heads() > 0 && spec.heads() % spec.kv_heads() != 0) {
      return wrong(concat("kv_heads: ", spec.kv_heads(), " does not divide heads ", spec.heads()));
    }
    const AttentionOptions options{.length = shape()[0],
                                   .width = shape()[1],
                                   .heads = spec.heads(),
                                   .kv_heads = spec.kv_heads(),
                                   .causal = spec.causal(),
                                   .rotary = spec.rotary()};
    if (options.rotary > 0 && options.width / options.heads % 2 != 0) {
      return wrong(fill_in("rotary: a head has {} columns, and pairs of them are turned",
                           options.width / options.heads));
    }
    auto done = positions_dense(".c_attn", options.columns(), true);
    if (!done) {
      return done;
    }
    network_.add(attention_layer(name_, options));
    return positions_dense(".c_proj", options.width, true);
  }

  /// A part of this layer: dense, on each position.
  Result<void> positions_dense(const char* part, std::int64_t outputs, bool bias) {
    return put(dense_layer(
        name_ + part,
        {.inputs = shape()[1], .outputs = outputs, .positions = shape()[0], .bias = bias}));
  }

  Result<void> swiglu(const proto::SwigluSpec& spec) {
    if (!is_sequence()) {
      return wrong(concat("needs a sequence (T, width), and gets ", shape()));
    }
    const std::int64_t width = shape()[1];
    auto done = positions_dense(".gate_up_proj", 2 * swiglu_width(spec.hidden(), width), false);
    if (!done) {
      return done;
    }
    network_.add(gate_layer(name_, shape(), ActivationKind::silu));
    return positions_dense(".down_proj", width, false);
  }

  Result<void> mixture(const proto::MixtureSpec& spec) {
    if (!is_sequence()) {
      return wrong(concat("needs a sequence (T, width), and gets ", shape()));
    }
    if (spec.chosen() > spec.experts()) {
      return wrong(
          concat("chosen: ", spec.chosen(), " are more than the ", spec.experts(), " experts"));
    }
    return put(mixture_layer(
        name_,
        {.length = shape()[0],
         .width = shape()[1],
         .experts = spec.experts(),
         .chosen = spec.chosen(),
         .hidden = swiglu_width(spec.hidden(), shape()[1]),
         .activation = spec.expert() == proto::MixtureSpec::gelu ? ActivationKind::gelu
                                                                 : ActivationKind::silu,
         .capacity = spec.capacity(),
         .balance = spec.balance()}));
  }

  Result<void> lstm(const proto::LstmSpec& spec) {
    if (!is_sequence()) {
      return wrong(concat("needs a sequence (T, width), and gets ", shape()));
    }
    return put(
        lstm_layer(name_, {.length = shape()[0], .inputs = shape()[1], .width = spec.width()}));
  }

  Result<void> fork(const proto::SkipSpec& spec) {
    if (network_.has_entry(spec.name())) {
      return wrong("a skip connection named " + spec.name() + " is open already");
    }
    return put(fork_layer(name_, spec.name()));
  }

  Result<void> join(const proto::SkipSpec& spec) {
    const ActivationKind activation = kind_of(spec.activation());
    TROUPE_TRY(check_open(spec));
    if (!(network_.entry(spec.name()) == shape())) {
      return wrong(concat("x is ", shape(), ", the skip ", network_.entry(spec.name())));
    }
    if (activation != ActivationKind::none && activation != ActivationKind::relu) {
      return wrong("activation of a join is none or relu");
    }
    return put(join_layer(name_, spec.name(), shape(), activation));
  }

  Result<void> check_open(const proto::SkipSpec& spec) const {
    if (!network_.has_entry(spec.name()) || spec.name() == "x") {
      return wrong("no skip connection named " + spec.name() + " is open");
    }
    return {};
  }

  Result<void> swap(const proto::SkipSpec& spec) {
    auto open = check_open(spec);
    return open ? put(swap_layer(name_, spec.name())) : open;
  }

  Result<void> concatenate(const proto::SkipSpec& spec) {
    TROUPE_TRY(check_open(spec));
    const Shape& skip = network_.entry(spec.name());
    bool fits = skip.dimensions() == shape().dimensions();
    for (int i = 0; fits && i + 1 < skip.dimensions(); ++i) {
      fits = skip[i] == shape()[i];
    }
    if (!fits) {
      return wrong(
          concat("x is ", shape(), ", the skip ", skip, "; they may differ in the last extent"));
    }
    return put(concatenate_layer(name_, spec.name(), shape().back(), skip.back()));
  }

  Result<void> custom(const proto::CustomScheme& spec) {
    auto layer = make_layer(spec, "model.layers.layer[" + name_ + "]", name_, network_);
    TROUPE_TRY(layer);
    network_.add(*std::move(layer));
    return {};
  }

  Network& network_;
  std::int64_t outputs_;
  std::string name_;
};

}  // namespace

Result<void> add_list(Network& network, const proto::Custom& options, std::int64_t outputs) {
  LayerList layers(network, outputs);
  for (int i = 0; i < options.layer_size(); ++i) {
    TROUPE_TRY(layers.add(options.layer(i), std::to_string(i)));
  }
  return layers.close();
}

}  // namespace troupe::zoo
