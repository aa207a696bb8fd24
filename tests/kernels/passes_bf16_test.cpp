// Passes that read and write bfloat16 on a GPU, as layers call them in bf16: each is the pass over float32 of the rounded values,
// rounded at the end. Skipped where there is no GPU.
#include "kernels/convert.hpp"
#include "kernels/convolution.hpp"
#include "kernels/dropout.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/loss.hpp"
#include "kernels/matmul.hpp"
#include "kernels/normalization.hpp"
#include "kernels/random.hpp"
#include "kernels/rotary.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"
#include "tests/support/skip.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace passes_bf16_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::array kTypes{DType::float32, DType::bfloat16};
constexpr ActivationKind kNone = ActivationKind::none;
constexpr ActivationKind kRelu = ActivationKind::relu;

/// Why the test cannot run; empty where it can.
std::string missing() {
  return !check_available(kGpu)                    ? "no GPU"
         : !check_precision(kGpu, Precision::bf16) ? "no bf16 on this GPU"
                                                   : "";
}

/// A value on the CPU, and the same on the GPU in one of two types.
struct Twin {
  Tensor cpu;
  Tensor gpu;
};

struct Streams {
  Stream cpu{Device{}};
  Stream gpu{kGpu, Precision::bf16};

  /// Normal values that bfloat16 can hold.
  Twin normal(std::uint64_t seed, Shape shape, DType type) {
    const Tensor narrow = cpu.allocate(shape, DType::bfloat16);
    convert(cpu, normal_tensor(cpu, seed, shape), narrow);
    const Tensor values = in_float32(cpu, narrow);
    const Tensor here = gpu.allocate(shape);
    copy(gpu, values, here);
    return {values, type == DType::bfloat16 ? operand(gpu, here) : here};
  }

  Twin empty(Shape shape, DType type = DType::float32) {
    return {cpu.allocate(shape), gpu.allocate(shape, type)};
  }
};

/// Half a unit in the last place of bfloat16 where that was written; besides, sums in other orders.
void check_rounded(const std::string& what, const Twin& twin, Tolerance sums = {1e-6, 1e-6}) {
  const double rounding = twin.gpu.type() == DType::bfloat16 ? 0x1p-8 : 0;
  check_close(what,
              to_host(twin.gpu),
              to_host(twin.cpu),
              {sums.absolute * (1 + rounding), sums.relative + rounding});
}

/// Gives the GPU the CPU's values: where relu bends, both gradients must take the same side.
void same_sides(Stream& gpu, const Twin& twin) {
  const Tensor here = gpu.allocate(twin.cpu.shape());
  copy(gpu, twin.cpu, here);
  if (twin.gpu.type() == DType::bfloat16) {
    convert(gpu, here, twin.gpu);
  } else {
    copy(gpu, here, twin.gpu);
  }
}

std::string named(DType a, DType b, DType c = DType::float32) {
  return concat(to_string(a), ' ', to_string(b), ' ', to_string(c));
}

}  // namespace

TEST_CASE("sums, activations and dropout take both types", "[gpu]") {
  if (const std::string why = missing(); !why.empty()) {
    return skip(why);
  }
  Streams s;
  const Shape shape{7, 37};
  for (const DType a : kTypes) {
    for (const DType b : kTypes) {
      INFO(named(a, b));
      const Twin x = s.normal(1, shape, a);
      const Twin dy = s.normal(2, shape, b);
      for (const DType c : kTypes) {
        const Twin sum = s.empty(shape, c);
        for (const ActivationKind kind : {kNone, kRelu}) {
          add(s.cpu, x.cpu, dy.cpu, kind, sum.cpu);
          add(s.gpu, x.gpu, dy.gpu, kind, sum.gpu);
          check_rounded("a + b", sum, {0, 0});
        }
      }
      const Twin y = s.empty(shape, a);
      const Twin dx = s.empty(shape, b);
      for (const ActivationKind kind : {kRelu,
                                        ActivationKind::tanh,
                                        ActivationKind::gelu,
                                        ActivationKind::selu,
                                        ActivationKind::silu}) {
        activation_forward(s.cpu, kind, x.cpu, y.cpu);
        activation_forward(s.gpu, kind, x.gpu, y.gpu);
        check_rounded("y", y);
        activation_backward(s.cpu, kind, x.cpu, dy.cpu, dx.cpu);
        activation_backward(s.gpu, kind, x.gpu, dy.gpu, dx.gpu);
        check_rounded("dx", dx, {2e-6, 2e-6});
      }
      const Twin wide = s.normal(3, {7, 74}, a);
      const Twin of_wide = s.empty(wide.cpu.shape(), a);
      gate_forward(s.cpu, ActivationKind::silu, wide.cpu, y.cpu);
      gate_forward(s.gpu, ActivationKind::silu, wide.gpu, y.gpu);
      check_rounded("gate", y);
      gate_backward(s.cpu, ActivationKind::silu, wide.cpu, dy.cpu, of_wide.cpu);
      gate_backward(s.gpu, ActivationKind::silu, wide.gpu, dy.gpu, of_wide.gpu);
      check_rounded("of the gate", of_wide, {3e-6, 2e-6});
      copy_columns(s.cpu, wide.cpu, 5, dx.cpu, 2, 30);
      copy_columns(s.gpu, wide.gpu, 5, dx.gpu, 2, 30);
      check_rounded("columns", dx, {2e-6, 2e-6});
      const auto three = [](const Tensor& t) {
        return t.reshape({1, 7, 74});
      };
      rotary(s.cpu, {.heads = 2, .head_size = 24}, three(wide.cpu), three(of_wide.cpu));
      rotary(s.gpu, {.heads = 2, .head_size = 24}, three(wide.gpu), three(of_wide.gpu));
      check_rounded("rotary", of_wide, {1e-6, 2e-7});
      const RandomStream random(7, Purpose::dropout);
      dropout(s.cpu, random, 5, 0.25f, x.cpu, y.cpu);
      dropout(s.gpu, random, 5, 0.25f, x.gpu, y.gpu);
      check_rounded("dropout", y, {0, 0});
    }
  }
}

TEST_CASE("normalizations take both types", "[gpu]") {
  if (const std::string why = missing(); !why.empty()) {
    return skip(why);
  }
  Streams s;
  const auto both =
      [&](auto call, const NormalizationForward& cpu, const NormalizationForward& gpu) {
        call(s.cpu, cpu);
        call(s.gpu, gpu);
      };
  for (const auto& [rows, columns] : {std::pair{33, 31}, {130, 64}, {9, 12}, {5, 4104}}) {
    const Twin gamma = s.normal(2, {columns}, DType::float32);
    const Twin beta = s.normal(3, {columns}, DType::float32);
    for (const DType of_x : kTypes) {
      for (const DType of_y : kTypes) {
        for (const DType of_dy : kTypes) {
          INFO(rows << " x " << columns << ": " << named(of_x, of_y, of_dy));
          const Twin x = s.normal(1, {rows, columns}, of_x);
          const Twin dy = s.normal(4, {rows, columns}, of_dy);
          const Twin y = s.empty({rows, columns}, of_y);
          const Twin dx = s.empty({rows, columns}, of_x);
          const Twin dgamma = s.empty({columns});
          const Twin dbeta = s.empty({columns});
          for (const bool batch : {true, false}) {
            const std::int64_t means = batch ? columns : rows;
            const Twin mean = s.empty({means});
            const Twin inverse = s.empty({means});
            const auto forward = [&](Stream& stream, const NormalizationForward& a) {
              batch ? batch_norm_forward(stream, kRelu, a) : layer_norm_forward(stream, a);
            };
            both(forward,
                 {x.cpu, gamma.cpu, beta.cpu, 1e-5f, y.cpu, mean.cpu, inverse.cpu},
                 {x.gpu, gamma.gpu, beta.gpu, 1e-5f, y.gpu, mean.gpu, inverse.gpu});
            check_rounded("y", y, {2e-5, 1e-5});
            same_sides(s.gpu, y);
            const auto backward =
                [&](Stream& stream, const Tensor& output, const NormalizationBackward& a) {
                  batch ? batch_norm_backward(stream, output, a) : layer_norm_backward(stream, a);
                };
            backward(
                s.cpu,
                y.cpu,
                {x.cpu, gamma.cpu, mean.cpu, inverse.cpu, dy.cpu, dx.cpu, dgamma.cpu, dbeta.cpu});
            backward(
                s.gpu,
                y.gpu,
                {x.gpu, gamma.gpu, mean.gpu, inverse.gpu, dy.gpu, dx.gpu, dgamma.gpu, dbeta.gpu});
            check_rounded("dx", dx, {5e-5, 1e-4});
            check_rounded("dgamma", dgamma, {1e-4, 1e-4});
            check_rounded("dbeta", dbeta, {1e-4, 1e-4});
          }
        }
      }
    }
  }
}

TEST_CASE("poolings of bfloat16 are those of the values", "[gpu]") {
  if (const std::string why = missing(); !why.empty()) {
    return skip(why);
  }
  Streams s;
  constexpr DType kNarrow = DType::bfloat16;
  // Channels that are read one by one, by four and by eight.
  const std::int64_t channels = GENERATE(5, 12, 16);
  const Shape images{2, 9, 7, channels};
  for (const ConvolutionGeometry& geometry :
       {ConvolutionGeometry{3, 2, 1}, ConvolutionGeometry{2, 2, 0}}) {
    const Shape windows{2, geometry.output(9), geometry.output(7), channels};
    const Twin x = s.normal(1, images, kNarrow);
    const Twin dy = s.normal(2, windows, kNarrow);
    const Twin y = s.empty(windows, kNarrow);
    const Twin dx = s.empty(images, kNarrow);
    const Twin winner{s.cpu.allocate(windows, DType::int32), s.gpu.allocate(windows, DType::int32)};
    max_pool_forward(s.cpu, geometry, x.cpu, y.cpu, winner.cpu);
    max_pool_forward(s.gpu, geometry, x.gpu, y.gpu, winner.gpu);
    CHECK(to_host(y.gpu) == to_host(y.cpu));
    CHECK(to_host(winner.gpu) == to_host(winner.cpu));
    max_pool_backward(s.cpu, geometry, dy.cpu, winner.cpu, dx.cpu);
    max_pool_backward(s.gpu, geometry, dy.gpu, winner.gpu, dx.gpu);
    check_rounded("dx", dx, {0, 0});
    average_pool_forward(s.cpu, geometry, x.cpu, y.cpu);
    average_pool_forward(s.gpu, geometry, x.gpu, y.gpu);
    check_rounded("average", y);
    average_pool_backward(s.cpu, geometry, dy.cpu, dx.cpu);
    average_pool_backward(s.gpu, geometry, dy.gpu, dx.gpu);
    check_rounded("its gradient", dx);
  }
}

TEST_CASE("cross-entropy of bfloat16 is that of the values", "[gpu]") {
  if (const std::string why = missing(); !why.empty()) {
    return skip(why);
  }
  Streams s;
  for (const std::int64_t classes : {3, 33, 257, 5001}) {
    const Twin x = s.normal(1, {11, classes}, DType::bfloat16);
    const Twin labels{random_labels(s.cpu, 2, 11, classes), random_labels(s.gpu, 2, 11, classes)};
    const Twin gradient = s.empty({11, classes}, DType::bfloat16);
    const Twin result{s.cpu.allocate({2}, DType::float64), s.gpu.allocate({2}, DType::float64)};
    for (const float smoothing : {0.0f, 0.1f}) {
      softmax_cross_entropy(s.cpu, x.cpu, labels.cpu, gradient.cpu, result.cpu, smoothing);
      softmax_cross_entropy(s.gpu, x.gpu, labels.gpu, gradient.gpu, result.gpu, smoothing);
      check_rounded("loss", result, {1e-5, 2e-6});
      check_rounded("gradient", gradient, {1e-7, 4e-6});
      // In place, and into rows that begin elsewhere than the logits': the same bits.
      const Tensor apart = s.gpu.allocate({11 * classes + 1}, DType::bfloat16);
      const Tensor elsewhere = apart.view(1, {11, classes});
      softmax_cross_entropy(s.gpu, x.gpu, labels.gpu, elsewhere, result.gpu, smoothing);
      CHECK(to_host(elsewhere) == to_host(gradient.gpu));
    }
  }
}

TEST_CASE("equal rows have equal losses and gradients wherever they begin", "[gpu]") {
  if (const std::string why = missing(); !why.empty()) {
    return skip(why);
  }
  Streams s;
  for (const std::int64_t classes : {33, 257, 5001}) {
    const Twin row = s.normal(1, {1, classes}, DType::bfloat16);
    const Tensor rows = s.gpu.allocate({9, classes}, DType::bfloat16);
    const Tensor gradient = s.gpu.allocate({9, classes}, DType::bfloat16);
    for (std::int64_t r = 0; r < 9; ++r) {
      copy(s.gpu, row.gpu, rows.view(r * classes, {1, classes}));
    }
    const Tensor labels = s.cpu.allocate({9}, DType::int32);
    std::ranges::fill(labels.span<std::int32_t>(), 2);
    const Tensor there = s.gpu.allocate({9}, DType::int32);
    copy(s.gpu, labels, there);
    const Tensor result = s.gpu.allocate({2}, DType::float64);
    softmax_cross_entropy(s.gpu, rows, there, gradient, result, 0);
    for (std::int64_t r = 1; r < 9; ++r) {
      CHECK(to_host(gradient.view(r * classes, {classes})) == to_host(gradient.view(0, {classes})));
    }
  }
}

TEST_CASE("normalizations add up the same wherever a tensor begins", "[gpu]") {
  if (const std::string why = missing(); !why.empty()) {
    return skip(why);
  }
  Streams s;
  const DType type = GENERATE(DType::float32, DType::bfloat16);
  const std::int64_t rows = 301, columns = 64;
  const auto apart = [&](const Tensor& x) {
    const Tensor y = s.gpu.allocate({x.elements() + 1}, x.type()).view(1, x.shape());
    copy(s.gpu, x, y);
    return y;
  };
  const Tensor x = s.normal(1, {rows, columns}, type).gpu;
  const Tensor dy = s.normal(2, {rows, columns}, type).gpu;
  const Tensor gamma = s.normal(3, {columns}, DType::float32).gpu;
  const Tensor beta = s.normal(4, {columns}, DType::float32).gpu;
  for (const bool batch : {true, false}) {
    const auto run = [&](const Tensor& input, const Tensor& error) {
      const Tensor mean = s.gpu.allocate({batch ? columns : rows});
      const Tensor inverse = s.gpu.allocate(mean.shape());
      const Tensor dgamma = s.gpu.allocate({columns}), dbeta = s.gpu.allocate({columns});
      const Tensor y = apart(x), dx = apart(x);
      const NormalizationForward forward{input, gamma, beta, 1e-5f, y, mean, inverse};
      batch ? batch_norm_forward(s.gpu, kNone, forward) : layer_norm_forward(s.gpu, forward);
      const NormalizationBackward backward{input, gamma, mean, inverse, error, dx, dgamma, dbeta};
      batch ? batch_norm_backward(s.gpu, Tensor(), backward) : layer_norm_backward(s.gpu, backward);
      return std::vector{to_host(mean),
                         to_host(inverse),
                         to_host(y),
                         to_host(dx),
                         to_host(dgamma),
                         to_host(dbeta)};
    };
    CHECK(run(x, dy) == run(apart(x), apart(dy)));
  }
}

TEST_CASE("a product writes bfloat16, with what follows it", "[gpu]") {
  if (const std::string why = missing(); !why.empty()) {
    return skip(why);
  }
  Streams s;
  for (const auto& [rows, columns, inner] :
       {std::array{5, 7, 9}, {64, 96, 32}, {33, 72, 65}, {70, 75, 81}}) {
    const Twin a = s.normal(1, {rows, inner}, DType::bfloat16);
    const Twin b = s.normal(2, {columns, inner}, DType::bfloat16);
    const Twin bias = s.normal(3, {columns}, DType::float32);
    const Twin c = s.empty({rows, columns}, DType::bfloat16);
    for (const ActivationKind kind : {kNone, kRelu, ActivationKind::tanh}) {
      for (const bool with_bias : {false, true}) {
        INFO(rows << " x " << columns << " x " << inner << ", " << to_string(kind)
                  << (with_bias ? ", bias" : ""));
        const auto options = [&](const Tensor& added) {
          return MatmulOptions{
              .transpose_b = true, .bias = with_bias ? added : Tensor{}, .activation = kind};
        };
        matmul(s.cpu, a.cpu, b.cpu, c.cpu, options(bias.cpu));
        matmul(s.gpu, a.gpu, b.gpu, c.gpu, options(bias.gpu));
        // Bias and tanh may be a pass of their own over the rounded product, which may be larger than the sum by the bias, less than 4.
        const bool twice = with_bias || kind == ActivationKind::tanh;
        check_rounded("c", c, twice ? Tolerance{0x1p-6, 0x1p-8} : Tolerance{1e-4, 1e-5});
      }
    }
  }
}

TEST_CASE("products into bfloat16 agree however their operands are stored", "[gpu]") {
  if (const std::string why = missing(); !why.empty()) {
    return skip(why);
  }
  Streams s;
  const auto transpose_a = GENERATE(false, true);
  const auto transpose_b = GENERATE(false, true);
  // Extents that are padded, and such that are not.
  for (const auto& [rows, columns, inner] :
       {std::array{70, 75, 81}, {72, 80, 96}, {66, 72, 97}, {81, 97, 72}}) {
    INFO(rows << " x " << columns << " x " << inner << " transposed " << transpose_a
              << transpose_b);
    const Twin a =
        s.normal(1, transpose_a ? Shape{inner, rows} : Shape{rows, inner}, DType::bfloat16);
    const Twin b =
        s.normal(2, transpose_b ? Shape{columns, inner} : Shape{inner, columns}, DType::bfloat16);
    MatmulOptions options{.transpose_a = transpose_a, .transpose_b = transpose_b};
    const Twin c = s.empty({rows, columns}, DType::bfloat16);
    matmul(s.cpu, a.cpu, b.cpu, c.cpu, options);
    matmul(s.gpu, a.gpu, b.gpu, c.gpu, options);
    check_rounded("c", c, {1e-4, 1e-5});
    options.accumulate = true;
    const Twin sum = s.normal(3, {rows, columns}, DType::bfloat16);
    matmul(s.cpu, a.cpu, b.cpu, sum.cpu, options);
    matmul(s.gpu, a.gpu, b.gpu, sum.gpu, options);
    // cuBLASLt rounds some products before it adds c to them, and their sum once more: each by half a unit in the last place.
    const Values products = to_host(c.cpu), there = to_host(sum.gpu), exact = to_host(sum.cpu);
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const double rounding = 0x1p-8 * (std::abs(products[i]) + std::abs(exact[i]));
      CHECK(std::abs(there[i] - exact[i]) <= 1.01 * rounding + 1e-4);
    }
  }
}

TEST_CASE("a convolution writes bfloat16, with what follows it", "[gpu]") {
  if (const std::string why = missing(); !why.empty()) {
    return skip(why);
  }
  if (cudnn_version().empty()) {
    return skip("no cuDNN");
  }
  Streams s;
  const ConvolutionGeometry geometry{3, 1, 1};
  const Twin x = s.normal(1, {2, 9, 7, 16}, DType::bfloat16);
  const Twin w = s.normal(2, {8, 3, 3, 16}, DType::float32);
  const Twin bias = s.normal(3, {8}, DType::float32);
  const Twin y = s.empty({2, 9, 7, 8}, DType::bfloat16);
  convolution_forward(s.cpu, {geometry, x.cpu, w.cpu, bias.cpu, kRelu, y.cpu});
  convolution_forward(s.gpu, {geometry, x.gpu, w.gpu, bias.gpu, kRelu, y.gpu});
  // The product is rounded, and its sum with the bias once more.
  check_rounded("y", y, {0.2, 0x1p-8});
  const Twin dy = s.normal(4, {2, 9, 7, 8}, DType::bfloat16);
  const Twin dx = s.empty({2, 9, 7, 16}, DType::bfloat16);
  troupe::convolution_input_gradient(s.cpu, geometry, dy.cpu, w.cpu, dx.cpu);
  troupe::convolution_input_gradient(s.gpu, geometry, dy.gpu, w.gpu, dx.gpu);
  check_rounded("dx", dx, {1e-4, 1e-5});
}

}  // namespace passes_bf16_test
