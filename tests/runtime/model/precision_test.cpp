// Whole networks in tf32 and bf16 on a GPU against float32 on the CPU: the loss, and the gradient as a direction. Skipped
// where there is no GPU.
#include "kernels/random.hpp"
#include "runtime/model/chunk.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/fake_data.hpp"
#include "tests/support/reference.hpp"
#include "tests/support/skip.hpp"

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>

namespace precision_test {

using namespace troupe;
using namespace troupe::test;

namespace {

struct Passed {
  double loss = 0;    // a mean
  Values gradient{};  // of all parameters
};

/// Forward and backward of one micro-batch, the same on every stream.
Passed passed(Stream& stream, const Network& network, std::int64_t batch, std::int64_t classes) {
  const Chunk chunk(network, {0}, 0);
  const Shape shape = with_batch(batch, network.input);
  const Tensor x = network.tokens
                       ? random_labels(stream, 1, shape.elements(), classes).reshape(shape)
                       : normal_tensor(stream, 1, shape);
  const std::int64_t rows = network.tokens ? shape.elements() : batch;
  const Tensor labels =
      random_labels(stream, 2, rows, classes).reshape(network.tokens ? shape : Shape{batch});
  Weights weights;
  for (Tensor& slice : chunk.initial_slices(stream, 1)) {
    weights.push_back({.values = std::move(slice)});
  }
  const Pass pass{.stream = stream};
  ForwardPass forward =
      chunk.forward(pass, weights, chunk.initial_buffers(stream), {{"x", x}}, labels, true);
  Passed result{.loss = to_host(forward.result)[0] / static_cast<double>(rows)};
  const InputGradient backward = chunk.input_gradient(pass, weights, std::move(forward.stash), {});
  for (const Tensor& slice : chunk.weight_gradient(stream, backward.deltas, {}, 1).gradient) {
    const Values values = to_host(slice);
    result.gradient.insert(result.gradient.end(), values.begin(), values.end());
  }
  return result;
}

/// |a - b| / |b|.
double distance(const Values& a, const Values& b) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

/// How far a gradient may be from the exact one where no layer has a kink: a rounding of 2^-9 (2^-10) at each product; errors of
/// layers add up like a random walk's steps, and batch normalization of few rows magnifies them.
double allowed_smooth(Precision precision) {
  return precision == Precision::bf16 ? 1e-1 : precision == Precision::tf32 ? 2e-2 : 1e-3;
}

/// The same through `layers` of relu. An error of e in a normal value changes its sign with probability e / pi, and then the whole
/// of a gradient comes or goes: of the square of its length 2 e / pi a layer. e is 0.4 of the largest rounding (of a sum of 576
/// products 24 of them), from both operands of as many layers as lie before, half of all. Twice that.
double allowed_with_kinks(Precision precision, int layers) {
  const double rounding = precision == Precision::bf16   ? 0x1p-8
                          : precision == Precision::tf32 ? 0x1p-10
                                                         : 24 * 0x1p-24;
  const double error = 0.4 * rounding * std::sqrt(double(layers));
  return 2 * std::sqrt(layers * 2 * error / std::numbers::pi);
}

/// `kinks`: layers of relu on top of each other.
void check_near(const std::string& model,
                const FakeData& data,
                std::int64_t batch,
                std::int64_t classes,
                int kinks = 0) {
  INFO(model);
  const auto network = network_of("model { " + model + " }", data);
  REQUIRE(network);
  Stream cpu{Device{}};
  const Passed exact = passed(cpu, *network, batch, classes);
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
    INFO(to_string(precision));
    Stream gpu(kGpu, precision);
    const Passed got = passed(gpu, *network, batch, classes);
    const double loss = precision == Precision::bf16 ? 2e-2 : 1e-3;
    CHECK(got.loss == Approx(exact.loss).epsilon(loss));
    CHECK(distance(got.gradient, exact.gradient) <
          (kinks > 0 ? allowed_with_kinks(precision, kinks) : allowed_smooth(precision)));
  }
}

std::string missing() {
  if (!check_available(kGpu)) {
    return "no GPU";
  }
  return check_precision(kGpu, Precision::bf16) ? "" : "no bf16 on this GPU";
}

}  // namespace

TEST_CASE("dense and recurrent networks are near those in float32", "[gpu]") {
  if (const std::string why = missing(); !why.empty()) {
    return skip(why);
  }
  check_near("mlp { hidden: [65, 33] activation: tanh }", FakeData({31}, false, 7), 17, 7);
  check_near("lstm { layers: 1 width: 24 }", FakeData({9}, true, 11), 5, 11);
  check_near("gpt { layers: 2 width: 48 heads: 3 }", FakeData({70}, true, 11), 3, 11);
  check_near("llama { layers: 2 width: 48 heads: 3 kv_heads: 1 }", FakeData({70}, true, 11), 3, 11);
  // All experts: near a tie a rounding would choose another one.
  check_near("llama { layers: 1 width: 48 heads: 3 experts: 3 chosen: 3 hidden: 40 }",
             FakeData({70}, true, 11),
             3,
             11);
}

TEST_CASE("convolutional networks are near those in float32", "[gpu]") {
  if (const std::string why = missing(); !why.empty()) {
    return skip(why);
  }
  if (cudnn_version().empty()) {
    return skip("no cuDNN");
  }
  check_near("lenet5 {}", FakeData({28, 28, 1}, false, 10), 9, 10);
  check_near(
      "layers { layer { convolution { outputs: 16 } } layer { batch_norm {} } "
      "layer { activation { kind: tanh } } layer { fork { name: 'a' } } "
      "layer { convolution { outputs: 16 activation: tanh } } layer { convolution { outputs: 16 } "
      "} "
      "layer { batch_norm {} } layer { join { name: 'a' } } layer { activation { kind: tanh } } "
      "layer { convolution { outputs: 32 stride: 2 activation: selu } } "
      "layer { average_pool { kernel: 4 } } layer { dense {} } }",
      FakeData({16, 16, 3}, false, 10),
      16,
      10);
  check_near("resnet { depth: 20 }", FakeData({32, 32, 3}, false, 10), 16, 10, 19);
}

}  // namespace precision_test
