// Layers and networks of one's own: what is registered, what is refused, and the gradients of one.
#include "runtime/model/registry.hpp"

#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/data/memory.hpp"
#include "runtime/model/chunk.hpp"
#include "runtime/model/layers.hpp"
#include "tests/support/catch.hpp"

#include <cmath>

namespace registry_test {

using namespace troupe;

namespace {

/// y = scale tanh(gain x) with one gain that is learnt: a plain layer written on host memory.
class GainedTanh final : public PlainLayer {
 public:
  GainedTanh(std::string name, Shape input, double scale, std::string parameter)
      : PlainLayer(std::move(name)),
        input_(input),
        scale_(static_cast<float>(scale)),
        parameter_(std::move(parameter)) {}

  std::vector<ParameterSpec> parameters() const override {
    return {{.name = parameter_, .shape = {1}, .initial = Initial::one}};
  }

  Shape output_shape() const override { return input_; }

  std::int64_t saved_bytes() const override { return 4 * input_.elements(); }

  Tensor transform(const Pass& pass,
                   Parameters w,
                   std::span<Tensor>,
                   const Tensor& x,
                   Saved& saved) const override {
    const Tensor y = pass.stream.allocate(x.shape());
    for (std::size_t i = 0; i < y.span<float>().size(); ++i) {
      y.span<float>()[i] = scale_ * std::tanh(w[0].span<float>()[0] * x.span<float>()[i]);
    }
    saved = {x};
    return y;
  }

  Tensor transform_gradient(
      const Pass& pass, Parameters w, Saved& saved, Tensor dy, bool) const override {
    const Tensor x = std::move(saved[0]);
    const float gain = w[0].span<float>()[0];
    const Tensor dx = pass.stream.allocate(x.shape());
    double of_gain = 0;
    for (std::size_t i = 0; i < dx.span<float>().size(); ++i) {
      const float t = std::tanh(gain * x.span<float>()[i]);
      const float inner = dy.span<float>()[i] * scale_ * (1 - t * t);
      dx.span<float>()[i] = inner * gain;
      of_gain += static_cast<double>(inner * x.span<float>()[i]);
    }
    saved = {pass.stream.allocate({1})};
    saved[0].span<float>()[0] = static_cast<float>(of_gain);
    return dx;
  }

  void weight_gradient(Stream&, const Saved& saved, std::span<const Gradient> g) const override {
    float& to = g[0].to.span<float>()[0];
    to = saved[0].span<float>()[0] + (g[0].accumulate ? to : 0);
  }

 private:
  Shape input_;
  float scale_;
  std::string parameter_;
};

using MadeLayer = Result<std::shared_ptr<const Layer>>;

LayerScheme gained_tanh() {
  return {.info = {.name = "gained_tanh",
                   .summary = "for the test",
                   .options = {{.name = "scale", .number = 1, .at_least = 0.1, .at_most = 10}}},
          .make = [](const std::string& name, const BundleShape& in, const OptionValues& values) {
            return MadeLayer(std::make_shared<GainedTanh>(
                name, in.front().shape, values.number("scale"), name + ".gain"));
          }};
}

LayerScheme misnamed() {
  return {.info = {.name = "misnamed", .summary = ""},
          .make = [](const std::string& name, const BundleShape& in, const OptionValues&) {
            return MadeLayer(std::make_shared<GainedTanh>(name, in.front().shape, 1, "gain"));
          }};
}

LayerScheme nothing() {
  return {.info = {.name = "nothing", .summary = ""},
          .make = [](const std::string&, const BundleShape&, const OptionValues&) {
            return MadeLayer(std::shared_ptr<const Layer>());
          }};
}

LayerScheme picky() {
  return {.info = {.name = "picky", .summary = ""},
          .make = [](const std::string&, const BundleShape& in, const OptionValues&) {
            return MadeLayer(
                Error{ErrorKind::usage, concat("it wants 5 inputs, and gets ", in[0].shape)});
          }};
}

NetworkScheme network(const char* name, decltype(NetworkScheme::build) build) {
  return {.info = {.name = name, .summary = ""}, .build = std::move(build)};
}

/// The mean over the rows of half the square of the outputs; right are those whose label is 2.
Judged half_square(Stream&, const Tensor& y, const Tensor& target, const Tensor& gradient) {
  Judged judged;
  const auto rows = static_cast<double>(y.shape()[0]);
  for (std::size_t i = 0; i < y.span<float>().size(); ++i) {
    const float value = y.span<float>()[i];
    judged.mean += 0.5 * static_cast<double>(value) * static_cast<double>(value) / rows;
    if (gradient) {
      gradient.span<float>()[i] = value / static_cast<float>(rows);
    }
  }
  for (const std::int32_t label : target.span<std::int32_t>()) {
    judged.right += label == 2 ? 1 : 0;
  }
  return judged;
}

void register_all() {
  static const bool made = [] {
    bool all = true;
    for (const LayerScheme& layer : {gained_tanh(), misnamed(), nothing(), picky()}) {
      all = register_layer(layer) && all;
    }
    const auto dense = [](const Network& n, const std::string& name, std::int64_t outputs) {
      return dense_layer(name, {.inputs = n.shape().elements(), .outputs = outputs});
    };
    all = register_network(network("short",
                                   [=](Network& n, const NetworkContext& c) {
                                     n.add(dense(n, "a", c.outputs + 1));
                                     return Result<void>();
                                   })) &&
          all;
    all = register_network(network("twins",
                                   [=](Network& n, const NetworkContext& c) {
                                     n.add(dense(n, "a", 4));
                                     n.add(dense(n, "a", c.outputs));
                                     return Result<void>();
                                   })) &&
          all;
    all = register_network(network("open",
                                   [=](Network& n, const NetworkContext& c) {
                                     n.add(fork_layer("fork", "s"));
                                     n.add(dense(n, "a", c.outputs));
                                     return Result<void>();
                                   })) &&
          all;
    all = register_network(network("shrinking",
                                   [=](Network& n, const NetworkContext&) {
                                     n.add(dense(n, "a", 5));
                                     n.loss = Loss::own;
                                     n.own_loss = half_square;
                                     return Result<void>();
                                   })) &&
          all;
    return register_network(
               network("empty", [](Network&, const NetworkContext&) { return Result<void>(); })) &&
           all;
  }();
  REQUIRE(made);
}

std::shared_ptr<const Dataset> vectors() {
  const MemorySamples samples{.x = {1, 2, 3, 4, 5, 6}, .labels = {0, 2}};
  const auto data =
      memory_dataset({.sample = {3}, .classes = 3, .train = samples, .test = samples});
  REQUIRE(data);
  return *data;
}

Result<Network> built(const std::string& model) {
  register_all();
  auto experiment = parse_experiment("model { " + model + " }", "test.textproto");
  REQUIRE(experiment);
  REQUIRE(resolve(*experiment));
  return build_network(experiment->model(), *vectors());
}

std::string refusal(const std::string& model) {
  const auto made = built(model);
  return made ? std::string() : made.error().message;
}

const std::string kDense = "layer { dense {} }";

std::string listed(const std::string& name) {
  return "layers { layer { custom { name: '" + name + "' } } " + kDense + " }";
}

}  // namespace

TEST_CASE("layers and networks need a name and a function", "[runtime][model]") {
  register_all();
  CHECK(register_layer(gained_tanh()).error().message ==
        "register_layer: \"gained_tanh\" is taken");
  CHECK(register_layer({.info = {.name = "x", .summary = ""}}).error().message ==
        "register_layer: \"x\" has no function make");
  CHECK(register_network({.info = {.name = "x", .summary = ""}}).error().message ==
        "register_network: \"x\" has no function build");
  CHECK(register_network(
            network("vgg", [](Network&, const NetworkContext&) { return Result<void>(); }))
            .error()
            .message == "register_network: \"vgg\" is taken");
}

TEST_CASE("what a factory makes wrong is refused with a sentence", "[runtime][model]") {
  CHECK(refusal(listed("gained_tanh")).empty());
  CHECK(refusal(listed("gained_tan"))
            .starts_with("model.layers.layer[0].custom.name: \"gained_tan\" has not been "
                         "registered, did you mean \"gained_tanh\"?"));
  CHECK(refusal(listed("nothing")) ==
        "model.layers.layer[0].custom: nothing has made no layer: its factory returned null");
  CHECK(refusal(listed("misnamed")) ==
        "model.layers.layer[0].custom: misnamed has a parameter called \"gain\"; its name has to "
        "begin with the layer's, \"0.\"");
  CHECK(refusal(listed("picky")) ==
        "model.layers.layer[0].custom: picky does not fit: it wants 5 inputs, and gets (3)");
  CHECK(refusal("layers { layer { custom { name: 'gained_tanh' values { key: 'scale' value: 11 } } "
                "} " +
                kDense + " }") ==
        "model.layers.layer[0].custom.values.scale: 11 does not do; it is from 0.1 to 10");
  CHECK(refusal("custom { name: 'empty' }") == "model: empty: there are no layers");
  CHECK(refusal("custom { name: 'short' }") ==
        "model: short: the last layer's output is (4), the data wants 3 values; end with a dense "
        "layer");
  CHECK(refusal("custom { name: 'twins' }") ==
        "model: twins: two parameters are called \"a.weight\"");
  CHECK(refusal("custom { name: 'open' }") == "model: open: the skip connection s is never joined");
  CHECK(refusal("custom { name: 'mlp' }") ==
        "model.custom.name: mlp is built in; choose it by model=mlp");
}

TEST_CASE("a network's own loss judges outputs of any shape", "[runtime][model]") {
  CHECK(refusal("label_smoothing: 0.1 custom { name: 'shrinking' }") ==
        "model.label_smoothing: the network has a loss of its own");
  const auto network = built("custom { name: 'shrinking' }");
  REQUIRE(network);
  Stream stream(Device{});
  const Chunk chunk(*network, {0}, 0);
  Weights weights;
  for (Tensor& slice : chunk.initial_slices(stream, 1)) {
    weights.push_back({.values = std::move(slice)});
  }
  const Tensor x = stream.allocate({2, 3});
  const Tensor labels = stream.allocate({2}, DType::int32);
  fill(stream, x, 0.5);
  labels.span<std::int32_t>()[0] = 0;
  labels.span<std::int32_t>()[1] = 2;
  const Pass pass{.stream = stream};
  const Tensor y = chunk.forward(pass, weights, {}, {{"x", x}}, {}, false).y.front().tensor;
  ForwardPass out = chunk.forward(pass, weights, {}, {{"x", x}}, labels, true);
  double sum = 0;
  for (const float value : y.span<float>()) {
    sum += 0.5 * static_cast<double>(value) * static_cast<double>(value);
  }
  REQUIRE(sum > 0);
  CHECK(out.result.span<double>()[0] == Approx(sum));
  CHECK(out.result.span<double>()[1] == 1);
  const InputGradient backward = chunk.input_gradient(pass, weights, std::move(out.stash), {});
  const std::vector<Tensor> g = chunk.weight_gradient(stream, backward.deltas, {}, 1).gradient;
  const ParameterLayout::Entry& bias = chunk.layout().entries.back();
  for (std::size_t i = 0; i < 5; ++i) {  // the mean over two rows, which are alike, of dL/dy = y
    CHECK(g[bias.slice].span<float>()[static_cast<std::size_t>(bias.offset) + i] ==
          Approx(y.span<float>()[i]));
  }
}

TEST_CASE("a layer of one's own has the gradients of its finite differences", "[runtime][model]") {
  const auto network = built(
      "layers { layer { dense { outputs: 4 } } layer { custom { name: 'gained_tanh' values { key: "
      "'scale' value: 1.5 } } } " +
      kDense + " }");
  REQUIRE(network);
  CHECK(network->parameters() == 3 * 4 + 4 + 1 + 4 * 3 + 3);
  Stream stream(Device{});
  const Chunk chunk(*network, {0}, 0);
  Weights weights;
  for (Tensor& slice : chunk.initial_slices(stream, 1)) {
    weights.push_back({.values = std::move(slice)});
  }
  const Tensor x = stream.allocate({2, 3});
  const Tensor labels = stream.allocate({2}, DType::int32);
  for (std::size_t i = 0; i < 6; ++i) {
    x.span<float>()[i] = static_cast<float>(std::sin(1.0 + static_cast<double>(i)));
  }
  labels.span<std::int32_t>()[0] = 0;
  labels.span<std::int32_t>()[1] = 2;
  const Pass pass{.stream = stream};
  const auto forward = [&] {
    return chunk.forward(pass, weights, {}, {{"x", x}}, labels, true);
  };
  ForwardPass out = forward();
  const InputGradient backward = chunk.input_gradient(pass, weights, std::move(out.stash), {});
  const std::vector<Tensor> g = chunk.weight_gradient(stream, backward.deltas, {}, 1).gradient;
  bool gain_seen = false;
  for (const ParameterLayout::Entry& entry : chunk.layout().entries) {
    for (std::int64_t i = 0; i < entry.spec.shape.elements(); ++i) {
      const auto at = static_cast<std::size_t>(entry.offset + i);
      float& w = weights[entry.slice].values.span<float>()[at];
      const float middle = w;
      constexpr float kStep = 1e-2f;  // errors: its square, and 1e-7 / step
      w = middle + kStep;
      const double above = to_host(forward().result)[0];
      w = middle - kStep;
      const double below = to_host(forward().result)[0];
      w = middle;
      INFO(entry.spec.name << " " << i);
      // The loss is the sum over the two samples, the gradient its mean's.
      CHECK(g[entry.slice].span<float>()[at] ==
            Approx((above - below) / (2 * kStep) / 2).epsilon(2e-3).margin(2e-4));
    }
    gain_seen = gain_seen || entry.spec.name == "1.gain";
  }
  CHECK(gain_seen);
}

}  // namespace registry_test
