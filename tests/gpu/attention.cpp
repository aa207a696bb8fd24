// Attention as gpu_decisions measures it: beside a large product, and beside its own products by cuBLASLt.
#include "kernels/attention.hpp"

#include "kernels/convert.hpp"
#include "kernels/matmul.hpp"
#include "tests/gpu/decisions.hpp"

#include <array>
#include <cstdio>
#include <string>

namespace troupe::decisions {

namespace {

struct Rates {
  double forward, backward;  // share of a large product's rate, of what is seen
  double gain;               // products by cuBLASLt over attention, both ways
};

/// With qkv, y and their gradients of `type`.
Rates measure(Stream& stream, Shape shape, std::int64_t heads, double peak, DType type) {
  const std::int64_t batch = shape[0], time = shape[1], columns = shape[2];
  const auto of_type = [&](Shape all) {
    const Tensor x = varied(stream, all);
    return type == DType::float32 ? x : operand(stream, x);
  };
  const Tensor qkv = of_type({batch, time, 3 * columns}), y = of_type(shape);
  const Tensor dqkv = of_type(qkv.shape()), dy = of_type(shape);
  const Tensor log_sum = stream.allocate({batch, heads, time});
  const double forward =
      seconds(stream, [&] { attention_forward(stream, {.heads = heads}, qkv, y, log_sum); });
  const double backward = seconds(stream, [&] {
    attention_backward(
        stream,
        {.form = {.heads = heads}, .qkv = qkv, .y = y, .log_sum = log_sum, .dy = dy, .dqkv = dqkv});
  });
  const std::int64_t rows = batch * heads * time, width = columns / heads;
  const Tensor q = operand(stream, varied(stream, {rows, width}));
  const Tensor k = operand(stream, varied(stream, {time, width}));
  const Tensor p = operand(stream, varied(stream, {rows, time}));
  const Tensor scores = stream.allocate({rows, time}), out = stream.allocate({rows, width});
  const double products = seconds(stream, [&] {
    matmul(stream, q, k, scores, {.transpose_b = true});
    matmul(stream, p, k, out);
  });
  const auto flops = static_cast<double>(2 * rows * time * width);  // seen, of two products
  const Rates rates{
      flops / forward / peak, 2.5 * flops / backward / peak, 3.5 * products / (forward + backward)};
  std::printf(
      "%s, %s (%lld, %lld, 3 x %lld) in %lld heads: forward %.1f us, %.0f %% of the peak; backward "
      "%.1f us, %.0f %%; products of all scores by cuBLASLt %.1f and %.1f us\n",
      std::string(to_string(stream.precision())).c_str(),
      std::string(to_string(type)).c_str(),
      static_cast<long long>(batch),
      static_cast<long long>(time),
      static_cast<long long>(columns),
      static_cast<long long>(heads),
      1e6 * forward,
      100 * rates.forward,
      1e6 * backward,
      100 * rates.backward,
      1e6 * products,
      2.5e6 * products);
  return rates;
}

}  // namespace

void attention() {
  std::string answer;
  for (const Precision precision : precisions(kDevice)) {
    if (precision == Precision::tf32) {  // attention multiplies in float32 then
      continue;
    }
    Stream stream(kDevice, precision);
    const std::int64_t n = small ? 32 : 4096;
    const Tensor a = operand(stream, varied(stream, {n, n}));
    const Tensor c = stream.allocate({n, n});
    const double peak =
        2.0 * static_cast<double>(n * n * n) / seconds(stream, [&] { matmul(stream, a, a, c); });
    std::printf("%s: the peak is here that of a product of %lld x %lld, %.1f TFLOP/s\n",
                std::string(to_string(precision)).c_str(),
                static_cast<long long>(n),
                static_cast<long long>(n),
                1e-12 * peak);
    const DType type = stream.operand_type();
    if (!small) {
      measure(stream, {16, 128, 128}, 4, peak, type);
    }
    const Shape shape = small ? Shape{1, 32, 32} : Shape{8, 1024, 768};
    const std::int64_t heads = small ? 2 : 12;
    if (type != DType::float32) {
      measure(stream, shape, heads, peak, DType::float32);
    }
    const Rates rates = measure(stream, shape, heads, peak, type);
    std::array<char, 160> text{};
    std::snprintf(text.data(),
                  text.size(),
                  "%s: forward %.0f %%, backward %.0f %% of the peak, %.2f x as quick as its "
                  "products by cuBLASLt; ",
                  std::string(to_string(precision)).c_str(),
                  100 * rates.forward,
                  100 * rates.backward,
                  rates.gain);
    answer += text.data();
  }
  std::printf("%stiles of 64 are not written in fp32\n", answer.c_str());
}

}  // namespace troupe::decisions
