// The gradient of a whole network against finite differences of its loss, along random directions
// in the space of all parameters: what the layers' own parts make of one another. Kernels are held
// to double precision elsewhere; here the activations are smooth and the tolerance is that of
// float32 losses.
#include "experiment/model.pb.h"
#include "kernels/random.hpp"
#include "runtime/model/chunk.hpp"
#include "runtime/model/layers.hpp"
#include "runtime/model/zoo.hpp"
#include "tests/support/catch.hpp"

#include <cmath>

namespace gradient_test {

using namespace troupe;

namespace {

class Gradients {
 public:
  explicit Gradients(const Network& network) : chunk_(network, {0}, 0) {
    const RandomStream random(3, Purpose::test);
    std::uint64_t index = 0;
    for (Tensor& slice : chunk_.initial_slices(stream_, 1)) {
      // Away from zero gradients: norms start at 1 and 0, residual branches small.
      for (float& w : slice.span<float>()) {
        w += 0.1f * static_cast<float>(random.normal(index++));
      }
      slices_.push_back(std::move(slice));
    }
    buffers_ = chunk_.initial_buffers(stream_);
  }

  double loss(const Tensor& x, const Tensor& labels, double along = 0) {
    Weights weights;
    const RandomStream random(5, Purpose::test);
    std::uint64_t index = 0;
    for (const Tensor& slice : slices_) {
      Tensor moved = stream_.allocate(slice.shape());
      for (std::size_t i = 0; i < moved.span<float>().size(); ++i) {
        const double d = random.normal(index++);
        moved.span<float>()[i] = slice.span<float>()[i] + static_cast<float>(along * d);
      }
      weights.push_back({.values = moved});
    }
    const ForwardPass out = chunk_.forward(pass(), weights, buffers_, {{"x", x}}, labels, true);
    return to_host(out.result)[0] / static_cast<double>(labels.elements());
  }

  /// The derivative along the same direction, by backward.
  double derivative(const Tensor& x, const Tensor& labels) {
    Weights weights;
    for (const Tensor& slice : slices_) {
      weights.push_back({.values = slice});
    }
    ForwardPass forward = chunk_.forward(pass(), weights, buffers_, {{"x", x}}, labels, true);
    const InputGradient backward =
        chunk_.input_gradient(pass(), weights, std::move(forward.stash), {});
    const std::vector<Tensor> g = chunk_.weight_gradient(stream_, backward.deltas, {}, 1).gradient;
    const RandomStream random(5, Purpose::test);
    std::uint64_t index = 0;
    double sum = 0;
    for (const Tensor& slice : g) {
      for (const float value : slice.span<float>()) {
        sum += static_cast<double>(value) * random.normal(index++);
      }
    }
    return sum;
  }

  Stream& stream() { return stream_; }

 private:
  Pass pass() { return {.stream = stream_, .seed = 7, .first_sample = 11}; }

  Stream stream_{Device{}};
  Chunk chunk_;
  std::vector<Tensor> slices_;
  std::vector<Tensor> buffers_;
};

/// `step`: its square times the third derivative, and 1e-7 / step, are small.
void check(const Network& network, std::int64_t batch, std::int64_t classes, double step = 2e-3) {
  Gradients g(network);
  const RandomStream random(9, Purpose::test);
  Shape shape = with_batch(batch, network.input);
  Tensor x = g.stream().allocate(shape, network.tokens ? DType::int32 : DType::float32);
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    if (network.tokens) {
      x.span<std::int32_t>()[static_cast<std::size_t>(i)] =
          static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(i), 5));
    } else {
      x.span<float>()[static_cast<std::size_t>(i)] =
          static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
    }
  }
  const Shape labels_shape = network.tokens ? shape : Shape{batch};
  Tensor labels = g.stream().allocate(labels_shape, DType::int32);
  for (std::size_t i = 0; i < labels.span<std::int32_t>().size(); ++i) {
    labels.span<std::int32_t>()[i] =
        static_cast<std::int32_t>(random.below(1'000 + i, static_cast<std::uint64_t>(classes)));
  }
  const double exact = g.derivative(x, labels);
  const double difference = (g.loss(x, labels, step) - g.loss(x, labels, -step)) / (2 * step);
  CHECK(std::abs(exact) > 1e-3);
  CHECK(exact == Approx(difference).epsilon(2e-3).margin(2e-4));
}

Network with_tokens(std::int64_t length) {
  Network network({length});
  network.tokens = true;
  return network;
}

}  // namespace

TEST_CASE("a network of dense layers with normalisations and skips", "[runtime][model]") {
  Network n({6});
  n.add(dense_layer("a", {.inputs = 6, .outputs = 8, .activation = ActivationKind::tanh}));
  n.add(fork_layer("fork", "s"));
  n.add(batch_norm_layer("bn", {8}, ActivationKind::none));
  n.add(on_skip("s", dense_layer("p", {.inputs = 8, .outputs = 8})));
  n.add(dense_layer("b", {.inputs = 8, .outputs = 8, .activation = ActivationKind::gelu}));
  n.add(dropout_layer("drop", {8}, 0.25));
  n.add(join_layer("join", "s", {8}, ActivationKind::none));
  n.add(layer_norm_layer("ln", {8}));
  n.add(activation_layer("selu", {8}, ActivationKind::selu));
  n.add(dense_layer("c", {.inputs = 8, .outputs = 4}));
  check(n, 7, 4);
}

TEST_CASE("a logistic layer, alone and behind another", "[runtime][model]") {
  Network alone({6});
  alone.add(logistic_layer("logistic", 6));
  check(alone, 7, 2);
  Network behind({6});
  behind.add(dense_layer("a", {.inputs = 6, .outputs = 8, .activation = ActivationKind::tanh}));
  behind.add(logistic_layer("logistic", 8));
  check(behind, 7, 2);
}

TEST_CASE("a network of convolutions, group norm and pooling", "[runtime][model]") {
  Network n({9, 9, 2});
  n.add(convolution_layer("c1",
                          {.input = {9, 9, 2},
                           .outputs = 6,
                           .geometry = {.kernel = 3, .stride = 2, .padding = 1},
                           .activation = ActivationKind::tanh,
                           .bias = false}));
  n.add(group_norm_layer("gn", n.shape(), 3));
  n.add(convolution_layer("c2",
                          {.input = n.shape(),
                           .outputs = 4,
                           .geometry = {.kernel = 2},
                           .activation = ActivationKind::gelu}));
  n.add(average_pool_layer("pool", n.shape(), {.kernel = 2, .stride = 2}));
  n.add(dense_layer("d", {.inputs = n.shape().elements(), .outputs = 3}));
  n.label_smoothing = 0.2;
  check(n, 3, 3);
}

TEST_CASE("a small U-Net: down, up, and side by side", "[runtime][model]") {
  Network n({4, 6, 2});
  const auto convolution = [&](const char* name, std::int64_t outputs) {
    n.add(convolution_layer(name,
                            {.input = n.shape(),
                             .outputs = outputs,
                             .geometry = {.kernel = 3, .stride = 1, .padding = 1},
                             .activation = ActivationKind::tanh}));
  };
  n.add(upsample_layer("first", n.shape()));
  convolution("in", 3);
  n.add(fork_layer("fork", "u"));
  n.add(average_pool_layer("down", n.shape(), {.kernel = 2, .stride = 2}));
  convolution("deep", 4);
  n.add(upsample_layer("up", n.shape()));
  n.add(concatenate_layer("beside", "u", 4, 3));
  CHECK(n.shape() == Shape{8, 12, 7});
  convolution("out", 1);
  n.add(dense_layer("d", {.inputs = n.shape().elements(), .outputs = 3}));
  check(n, 3, 3);
}

TEST_CASE("a GPT, tied and not", "[runtime][model]") {
  for (const bool tied : {false, true}) {
    proto::Gpt options;
    options.set_layers(2);
    options.set_width(12);
    options.set_heads(3);
    options.set_tied(tied);
    Network n = with_tokens(7);
    REQUIRE(zoo::add_gpt(n, options, 5));
    check(n, 3, 5);
  }
}

TEST_CASE("a Llama whose heads share keys, tied and not", "[runtime][model]") {
  for (const bool tied : {false, true}) {
    proto::Llama options;
    options.set_layers(2);
    options.set_width(12);
    options.set_heads(6);
    options.set_kv_heads(2);
    options.set_hidden(9);
    options.set_theta(10);
    options.set_epsilon(1e-5);
    options.set_tied(tied);
    Network n = with_tokens(7);
    REQUIRE(zoo::add_llama(n, options, 5));
    check(n, 3, 5, 5e-4);
  }
}

TEST_CASE("columns side by side, and ways that swap", "[runtime][model]") {
  Network n({6});
  n.add(fork_layer("fork", "s"));
  n.add(dense_layer("a", {.inputs = 6, .outputs = 5, .activation = ActivationKind::silu}));
  n.add(swap_layer("swap", "s"));
  n.add(dense_layer("b", {.inputs = 6, .outputs = 4, .activation = ActivationKind::gelu_erf}));
  n.add(concatenate_layer("both", "s", 4, 5));
  n.add(rms_norm_layer("rms", n.shape()));
  n.add(dense_layer("c", {.inputs = 9, .outputs = 8}));
  n.add(gate_layer("gate", n.shape(), ActivationKind::tanh));
  n.add(dense_layer("d", {.inputs = 4, .outputs = 4}));
  check(n, 7, 4);
}

TEST_CASE("an LSTM, plain and residual", "[runtime][model]") {
  for (const bool residual : {false, true}) {
    proto::Lstm options;
    options.set_layers(2);
    options.set_width(9);
    options.set_residual(residual);
    Network n = with_tokens(6);
    REQUIRE(zoo::add_lstm(n, options, 5, 1));
    check(n, 4, 5);
  }
}

}  // namespace gradient_test
