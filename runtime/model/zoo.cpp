#include "runtime/model/zoo.hpp"

#include "runtime/model/layers.hpp"

#include <cmath>
#include <map>
#include <utility>

namespace troupe::zoo {

ActivationKind kind_of(proto::Activation activation) {
  switch (activation) {
    case proto::relu:
      return ActivationKind::relu;
    case proto::tanh:
      return ActivationKind::tanh;
    case proto::gelu:
      return ActivationKind::gelu;
  }
  TROUPE_CHECK(false, "an activation without a kernel: ", activation);
}

namespace {

ActivationKind kind_of(proto::LayerActivation::Kind kind) {
  switch (kind) {
    case proto::LayerActivation::none:
      return ActivationKind::none;
    case proto::LayerActivation::relu:
      return ActivationKind::relu;
    case proto::LayerActivation::tanh:
      return ActivationKind::tanh;
    case proto::LayerActivation::gelu:
      return ActivationKind::gelu;
    case proto::LayerActivation::selu:
      return ActivationKind::selu;
  }
  TROUPE_CHECK(false, "an activation without a kernel: ", kind);
}

Error refused(const std::string& what) {
  return {ErrorKind::usage, "model: " + what};
}

/// Images (H, W, C) of at least `side` squared.
Result<void> needs_images(const Network& network, std::string_view model, std::int64_t side) {
  const Shape& input = network.input;
  if (input.dimensions() != 3 || input[0] < side || input[1] < side) {
    return refused(concat(
        model, " needs images of at least ", side, "x", side, "; the data's samples are ", input));
  }
  return {};
}

Result<void> needs_tokens(const Network& network, std::string_view model) {
  if (!network.tokens) {
    return refused(concat(model, " needs tokens, such as data: text"));
  }
  return {};
}

DenseOptions head(const Network& network, std::int64_t outputs) {
  return {.inputs = network.shape().elements(), .outputs = outputs, .head = true};
}

/// Convolution without bias, batch norm, and relu where asked for: what ResNets repeat. He
/// initialisation by fan out (He et al. 2015).
void add_normalised(Network& network,
                    const std::string& convolution,
                    const std::string& norm,
                    std::int64_t outputs,
                    ConvolutionGeometry geometry,
                    ActivationKind activation,
                    const std::string& on = "") {
  const auto fan_out = static_cast<double>(outputs * geometry.kernel * geometry.kernel);
  const Shape input = on.empty() ? network.shape() : network.entry(on);
  auto conv = convolution_layer(convolution,
                                {.input = input,
                                 .outputs = outputs,
                                 .geometry = geometry,
                                 .bias = false,
                                 .initial = Initial::normal,
                                 .deviation = std::sqrt(2 / fan_out),
                                 .normalised = true});
  network.add(on.empty() ? conv : on_skip(on, conv));
  auto batch_norm =
      batch_norm_layer(norm, on.empty() ? network.shape() : network.entry(on), activation);
  network.add(on.empty() ? batch_norm : on_skip(on, batch_norm));
}

/// The two or three convolutions of a residual block, and a projection where shapes change.
void add_residual_block(Network& network,
                        const std::string& name,
                        std::int64_t width,
                        std::int64_t stride,
                        bool bottleneck) {
  const std::string skip = name + ".skip";
  const std::int64_t outputs = bottleneck ? 4 * width : width;
  const bool projected = stride != 1 || network.shape()[2] != outputs;
  const ConvolutionGeometry three{.kernel = 3, .stride = 1, .padding = 1};
  const ConvolutionGeometry three_strided{.kernel = 3, .stride = stride, .padding = 1};
  const ConvolutionGeometry one{};
  const auto add = [&](int number,
                       std::int64_t channels,
                       const ConvolutionGeometry& geometry,
                       ActivationKind activation) {
    const std::string n = std::to_string(number);
    add_normalised(network, name + ".conv" + n, name + ".bn" + n, channels, geometry, activation);
  };
  network.add(fork_layer(name + ".fork", skip));
  if (bottleneck) {
    add(1, width, one, ActivationKind::relu);
    add(2, width, three_strided, ActivationKind::relu);
    add(3, outputs, one, ActivationKind::none);
  } else {
    add(1, width, three_strided, ActivationKind::relu);
    add(2, width, three, ActivationKind::none);
  }
  if (projected) {
    add_normalised(network,
                   name + ".downsample.0",
                   name + ".downsample.1",
                   outputs,
                   {.kernel = 1, .stride = stride},
                   ActivationKind::none,
                   skip);
  }
  network.add(join_layer(name + ".join", skip, network.shape(), ActivationKind::relu));
}

}  // namespace

void add_mlp(Network& network,
             const google::protobuf::RepeatedField<std::int64_t>& hidden,
             std::int64_t outputs,
             ActivationKind activation,
             Initial initial) {
  int number = 1;
  const auto add = [&](std::int64_t width, ActivationKind kind, bool is_head) {
    network.add(dense_layer("dense" + std::to_string(number++),
                            {.inputs = network.shape().elements(),
                             .outputs = width,
                             .activation = kind,
                             .initial = initial,
                             .head = is_head}));
  };
  for (const std::int64_t width : hidden) {
    add(width, activation, false);
  }
  add(outputs, ActivationKind::none, true);
}

Result<void> add_lenet5(Network& network, const proto::Lenet5& options, std::int64_t outputs) {
  if (auto fits = needs_images(network, "lenet5", 16); !fits) {
    return fits;
  }
  const ActivationKind activation = kind_of(options.activation());
  network.add(convolution_layer("conv1",
                                {.input = network.input,
                                 .outputs = 6,
                                 .geometry = {.kernel = 5, .padding = 2},
                                 .activation = activation,
                                 .pool = 2}));
  network.add(convolution_layer("conv2",
                                {.input = network.shape(),
                                 .outputs = 16,
                                 .geometry = {.kernel = 5},
                                 .activation = activation,
                                 .pool = 2}));
  google::protobuf::RepeatedField<std::int64_t> hidden;
  hidden.Add(120);
  hidden.Add(84);
  add_mlp(network, hidden, outputs, activation, Initial::uniform_fan_in);
  return {};
}

Result<void> add_vgg(Network& network, const proto::Vgg& options, std::int64_t outputs) {
  if (options.depth() != 11 && options.depth() != 16) {
    return refused(concat("vgg.depth is ", options.depth(), " (legal: 11, 16)"));
  }
  if (auto fits = needs_images(network, "vgg", 32); !fits) {
    return fits;
  }
  constexpr std::int64_t kPool = 0;
  const std::vector<std::int64_t> eleven{
      64, kPool, 128, kPool, 256, 256, kPool, 512, 512, kPool, 512, 512, kPool};
  const std::vector<std::int64_t> sixteen{64,
                                          64,
                                          kPool,
                                          128,
                                          128,
                                          kPool,
                                          256,
                                          256,
                                          256,
                                          kPool,
                                          512,
                                          512,
                                          512,
                                          kPool,
                                          512,
                                          512,
                                          512,
                                          kPool};
  int place = 0;  // in torchvision's list, where relu and pooling have places too
  const auto name = [&] {
    return "features." + std::to_string(place++);
  };
  const ConvolutionGeometry geometry{.kernel = 3, .stride = 1, .padding = 1};
  for (const std::int64_t channels : options.depth() == 11 ? eleven : sixteen) {
    if (channels == kPool) {
      network.add(max_pool_layer(name(), network.shape(), {.kernel = 2, .stride = 2}));
      continue;
    }
    // With a bias before batch norm too, of no use but as torchvision has it.
    const bool normalised = options.batch_norm();
    network.add(
        convolution_layer(name(),
                          {.input = network.shape(),
                           .outputs = channels,
                           .geometry = geometry,
                           .activation = normalised ? ActivationKind::none : ActivationKind::relu,
                           .initial = Initial::normal,
                           .deviation = std::sqrt(2 / (9.0 * static_cast<double>(channels)))}));
    if (normalised) {
      network.add(batch_norm_layer(name(), network.shape(), ActivationKind::relu));
    }
    ++place;
  }
  if (options.dropout() > 0) {
    network.add(dropout_layer("dropout", network.shape(), options.dropout()));
  }
  network.add(dense_layer("classifier", head(network, outputs)));
  return {};
}

Result<void> add_resnet(Network& network, const proto::Resnet& options, std::int64_t outputs) {
  const std::map<std::int64_t, std::vector<int>> blocks{
      {20, {3, 3, 3}}, {32, {5, 5, 5}}, {56, {9, 9, 9}}, {18, {2, 2, 2, 2}}, {50, {3, 4, 6, 3}}};
  const auto found = blocks.find(options.depth());
  if (found == blocks.end()) {
    return refused(concat("resnet.depth is ", options.depth(), " (legal: 18, 20, 32, 50, 56)"));
  }
  if (auto fits = needs_images(network, "resnet", 16); !fits) {
    return fits;
  }
  const bool for_cifar = found->second.size() == 3;
  std::int64_t width = for_cifar ? 16 : 64;
  if (for_cifar || options.small_stem()) {
    add_normalised(network,
                   "conv1",
                   "bn1",
                   width,
                   {.kernel = 3, .stride = 1, .padding = 1},
                   ActivationKind::relu);
  } else {
    add_normalised(network,
                   "conv1",
                   "bn1",
                   width,
                   {.kernel = 7, .stride = 2, .padding = 3},
                   ActivationKind::relu);
    network.add(
        max_pool_layer("maxpool", network.shape(), {.kernel = 3, .stride = 2, .padding = 1}));
  }
  int group = 1;
  for (const int count : found->second) {
    for (int i = 0; i < count; ++i) {
      add_residual_block(network,
                         "layer" + std::to_string(group) + "." + std::to_string(i),
                         width,
                         group > 1 && i == 0 ? 2 : 1,
                         options.depth() == 50);
    }
    ++group;
    width *= 2;
  }
  const Shape& last = network.shape();
  if (last[0] != last[1]) {
    return refused(concat("resnet needs square images; the data's samples are ", network.input));
  }
  network.add(average_pool_layer("avgpool", last, {.kernel = last[0], .stride = last[0]}));
  network.add(dense_layer("fc", head(network, outputs)));
  return {};
}

Result<void> add_lstm(Network& network, const proto::Lstm& options, std::int64_t vocabulary) {
  if (auto fits = needs_tokens(network, "lstm"); !fits) {
    return fits;
  }
  const std::int64_t length = network.input[0];
  const std::int64_t width = options.width();
  const auto drop = [&](const std::string& name) {
    if (options.dropout() > 0) {
      network.add(dropout_layer(name, network.shape(), options.dropout()));
    }
  };
  network.add(
      embedding_layer("encoder", {.vocabulary = vocabulary, .length = length, .width = width}));
  drop("encoder.dropout");
  for (std::int64_t i = 0; i < options.layers(); ++i) {
    const std::string name = "rnn." + std::to_string(i);
    if (options.residual()) {
      network.add(fork_layer(name + ".fork", name + ".skip"));
    }
    network.add(lstm_layer(name, length, width, width));
    if (options.residual()) {
      network.add(
          join_layer(name + ".join", name + ".skip", network.shape(), ActivationKind::none));
    }
    drop(name + ".dropout");
  }
  network.add(dense_layer(
      "decoder", {.inputs = width, .outputs = vocabulary, .positions = length, .head = true}));
  return {};
}

Result<void> add_gpt(Network& network, const proto::Gpt& options, std::int64_t vocabulary) {
  if (auto fits = needs_tokens(network, "gpt"); !fits) {
    return fits;
  }
  const std::int64_t length = network.input[0];
  const std::int64_t width = options.width();
  if (width % options.heads() != 0) {
    return refused(concat("gpt.heads: ", options.heads(), " does not divide gpt.width ", width));
  }
  constexpr double kDeviation = 0.02;
  const double branch = kDeviation / std::sqrt(2.0 * static_cast<double>(options.layers()));
  const std::string table = "transformer.wte.weight";
  const auto drop = [&](const std::string& name) {
    if (options.dropout() > 0) {
      network.add(dropout_layer(name, network.shape(), options.dropout()));
    }
  };
  const auto dense = [&](const std::string& name,
                         std::int64_t inputs,
                         std::int64_t outputs,
                         double deviation,
                         ActivationKind activation) {
    network.add(dense_layer(name,
                            {.inputs = inputs,
                             .outputs = outputs,
                             .activation = activation,
                             .initial = Initial::normal,
                             .deviation = deviation,
                             .positions = length}));
  };
  network.add(embedding_layer("transformer.wte",
                              {.vocabulary = vocabulary,
                               .length = length,
                               .width = width,
                               .positions = true,
                               .deviation = kDeviation,
                               .weight = table,
                               .position_weight = "transformer.wpe.weight",
                               .tied = options.tied()}));
  drop("transformer.drop");
  for (std::int64_t i = 0; i < options.layers(); ++i) {
    const std::string name = "transformer.h." + std::to_string(i);
    network.add(fork_layer(name + ".attn.fork", name + ".attn.skip"));
    network.add(layer_norm_layer(name + ".ln_1", network.shape()));
    dense(name + ".attn.c_attn", width, 3 * width, kDeviation, ActivationKind::none);
    network.add(attention_layer(name + ".attn", length, width, options.heads()));
    dense(name + ".attn.c_proj", width, width, branch, ActivationKind::none);
    drop(name + ".attn.resid_dropout");
    network.add(join_layer(
        name + ".attn.join", name + ".attn.skip", network.shape(), ActivationKind::none));
    network.add(fork_layer(name + ".mlp.fork", name + ".mlp.skip"));
    network.add(layer_norm_layer(name + ".ln_2", network.shape()));
    dense(name + ".mlp.c_fc", width, 4 * width, kDeviation, ActivationKind::gelu);
    dense(name + ".mlp.c_proj", 4 * width, width, branch, ActivationKind::none);
    drop(name + ".mlp.dropout");
    network.add(
        join_layer(name + ".mlp.join", name + ".mlp.skip", network.shape(), ActivationKind::none));
  }
  network.add(layer_norm_layer("transformer.ln_f", network.shape()));
  network.add(dense_layer("lm_head",
                          {.inputs = width,
                           .outputs = vocabulary,
                           .initial = Initial::normal,
                           .deviation = kDeviation,
                           .positions = length,
                           .bias = false,
                           .tied_weight = options.tied() ? table : "",
                           .head = true}));
  return {};
}

void add_quadratic(Network& network, const proto::Quadratic& options) {
  std::vector<double> curvatures;
  const std::int64_t n = options.dimensions();
  for (std::int64_t i = 0; i < n; ++i) {
    const double at = n > 1 ? static_cast<double>(i) / static_cast<double>(n - 1) : 0;
    curvatures.push_back(options.curvature() * std::pow(options.condition(), at));
  }
  for (std::int64_t i = 1; i <= options.layers(); ++i) {
    network.add(quadratic_layer("quadratic" + std::to_string(i), curvatures));
  }
}

Result<void> add_logistic(Network& network, std::int64_t outputs) {
  if (network.tokens || network.loss != Loss::cross_entropy || outputs != 2) {
    return Error{ErrorKind::usage, "model: logistic tells two classes apart, as data sparse has"};
  }
  network.add(logistic_layer("logistic", network.input.elements()));
  return {};
}

// -- a list of layers -------------------------------------------------------------------------------

namespace {

/// One layer of the user's list; `name` is its place in it.
class CustomLayers {
 public:
  CustomLayers(Network& network, std::int64_t outputs) : network_(network), outputs_(outputs) {}

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
      case proto::LayerSpec::kCustom:
        return wrong("custom: \"" + spec.custom().name() + "\" has not been registered");
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
    if (network_.after.back().size() > 1) {
      return refused("layers: the skip connection " + network_.after.back()[1].name +
                     " is never joined");
    }
    const bool fits = network_.tokens ? shape() == Shape{network_.input[0], outputs_}
                                      : shape().elements() == outputs_;
    if (!fits) {
      return refused(concat("layers: the last layer's output is ",
                            shape(),
                            ", the data wants ",
                            outputs_,
                            " values; end with dense {}"));
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
    if (auto fits = check_windows(geometry); !fits) {
      return fits;
    }
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
      return wrong(concat("a window of ",
                          g.kernel,
                          " with padding ",
                          g.padding,
                          " does not fit images of ",
                          shape()));
    }
    return {};
  }

  template <class Make>
  Result<void> pool(const proto::PoolSpec& spec, Make make) {
    if (spec.kernel() == 0 && is_image() && shape()[0] != shape()[1]) {
      return wrong(concat("the image is not square: ", shape()));
    }
    const std::int64_t kernel = spec.kernel() > 0 ? spec.kernel() : shape()[0];
    const ConvolutionGeometry geometry{.kernel = kernel,
                                       .stride = spec.stride() > 0 ? spec.stride() : kernel};
    if (auto fits = check_windows(geometry); !fits) {
      return fits;
    }
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
      return wrong(concat("needs a sequence (T, width) whose width ",
                          spec.heads(),
                          " divides, and gets ",
                          shape()));
    }
    const std::int64_t length = shape()[0];
    const std::int64_t width = shape()[1];
    const std::string name = name_;
    auto done = put(dense_layer(name + ".c_attn",
                                {.inputs = width, .outputs = 3 * width, .positions = length}));
    if (!done) {
      return done;
    }
    network_.add(attention_layer(name, length, width, spec.heads()));
    network_.add(
        dense_layer(name + ".c_proj", {.inputs = width, .outputs = width, .positions = length}));
    return {};
  }

  Result<void> lstm(const proto::LstmSpec& spec) {
    if (!is_sequence()) {
      return wrong(concat("needs a sequence (T, width), and gets ", shape()));
    }
    return put(lstm_layer(name_, shape()[0], shape()[1], spec.width()));
  }

  Result<void> fork(const proto::SkipSpec& spec) {
    if (network_.has_entry(spec.name())) {
      return wrong("a skip connection named " + spec.name() + " is open already");
    }
    return put(fork_layer(name_, spec.name()));
  }

  Result<void> join(const proto::SkipSpec& spec) {
    const ActivationKind activation = kind_of(spec.activation());
    if (!network_.has_entry(spec.name()) || spec.name() == "x") {
      return wrong("no skip connection named " + spec.name() + " is open");
    }
    if (!(network_.entry(spec.name()) == shape())) {
      return wrong(concat("x is ", shape(), ", the skip ", network_.entry(spec.name())));
    }
    if (activation != ActivationKind::none && activation != ActivationKind::relu) {
      return wrong("activation of a join is none or relu");
    }
    return put(join_layer(name_, spec.name(), shape(), activation));
  }

  Network& network_;
  std::int64_t outputs_;
  std::string name_;
};

}  // namespace

Result<void> add_custom(Network& network, const proto::Custom& options, std::int64_t outputs) {
  CustomLayers layers(network, outputs);
  for (int i = 0; i < options.layer_size(); ++i) {
    if (auto done = layers.add(options.layer(i), std::to_string(i)); !done) {
      return done;
    }
  }
  return layers.close();
}

}  // namespace troupe::zoo
