// Products in tf32 and bf16 on a GPU against float32 on the CPU, on odd shapes. Skipped where there is no GPU.
//
// Rounding one operand to bfloat16 errs by 2^-8 of it at most, to tf32 by 2^-10 (hardware may cut off instead of rounding),
// on average by 0.4 times that. Both operands of K products of normal numbers make 2^-8 0.4 sqrt(2K) of a sum; the
// tolerances are some four to five times that. A wrong index errs by sqrt(2K).
#include "kernels/attention.hpp"
#include "kernels/convert.hpp"
#include "kernels/convolution.hpp"
#include "kernels/lstm.hpp"
#include "kernels/matmul.hpp"
#include "kernels/normalization.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"
#include "tests/support/skip.hpp"

#include <cmath>
#include <string>

namespace precision_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// Why the test cannot run; empty where it can.
std::string missing(bool convolution = false) {
  if (!check_available(kGpu)) {
    return "no GPU";
  }
  if (!check_precision(kGpu, Precision::bf16)) {
    return "no bf16 on this GPU";
  }
  return convolution && cudnn_version().empty() ? "no cuDNN" : "";
}

struct Twin {
  Tensor cpu;
  Tensor gpu;
};

struct Streams {
  Stream cpu{Device{}};
  Stream gpu;

  explicit Streams(Precision precision) : gpu(kGpu, precision) {}

  Twin normal(std::uint64_t seed, Shape shape) {
    return {normal_tensor(cpu, seed, shape), normal_tensor(gpu, seed, shape)};
  }

  Twin empty(Shape shape) { return {cpu.allocate(shape), gpu.allocate(shape)}; }
};

void check_near(const std::string& what, const Twin& twin, Tolerance tolerance) {
  check_close(what, to_host(twin.gpu), to_host(twin.cpu), tolerance);
}

/// Of a sum of `terms` products.
Tolerance tolerance(Precision precision, std::int64_t terms) {
  const double root = std::sqrt(double(terms));
  return precision == Precision::bf16 ? Tolerance{1e-2 * root, 1e-2} : Tolerance{2e-3 * root, 2e-3};
}

/// In place: each value as its nearest bfloat16.
void round_values(Stream& stream, const Tensor& x) {
  const Tensor narrow = stream.allocate(x.shape(), DType::bfloat16);
  convert(stream, x, narrow);
  convert(stream, narrow, x);
}

struct Size {
  std::int64_t rows, columns, inner;
};

constexpr Size kSizes[] = {{1, 1, 1},
                           {1, 31, 33},
                           {33, 1, 31},
                           {31, 33, 1},
                           {37, 64, 65},
                           {128, 10, 84},
                           {127, 257, 129},
                           {64, 50, 768}};

}  // namespace

TEST_CASE("conversions agree with the CPU's in every bit", "[gpu]") {
  if (const std::string why = missing(); !why.empty()) {
    return skip(why);
  }
  Streams s(Precision::bf16);
  for (const std::int64_t n : {1, 31, 4099}) {
    for (const std::int64_t offset : {0, 1, 3}) {
      const Tensor x = normal_tensor(s.gpu, 1, {n + offset}).view(offset, {n});
      const Tensor narrow = s.gpu.allocate({n + offset}, DType::bfloat16).view(offset, {n});
      const Tensor wide = s.gpu.allocate({n});
      convert(s.gpu, x, narrow);
      convert(s.gpu, narrow, wide);
      Values expected = to_host(x);
      for (double& value : expected) {
        value = static_cast<double>(to_float(to_bfloat16(static_cast<float>(value))));
      }
      CHECK(to_host(narrow) == expected);
      CHECK(to_host(wide) == expected);
      CHECK(operand(s.gpu, narrow).data<BFloat16>() == narrow.data<BFloat16>());
      CHECK(to_host(operand(s.gpu, x)) == expected);
    }
  }
}

TEST_CASE("matrix products are near those in float32", "[gpu]") {
  if (const std::string why = missing(); !why.empty()) {
    return skip(why);
  }
  const auto precision = GENERATE(Precision::tf32, Precision::bf16);
  const auto transpose_a = GENERATE(false, true);
  const auto transpose_b = GENERATE(false, true);
  Streams s(precision);
  for (const auto& [rows, columns, inner] : kSizes) {
    INFO(to_string(precision) << ' ' << rows << " x " << columns << " x " << inner << " transposed "
                              << transpose_a << transpose_b);
    const Twin a = s.normal(1, transpose_a ? Shape{inner, rows} : Shape{rows, inner});
    const Twin b = s.normal(2, transpose_b ? Shape{columns, inner} : Shape{inner, columns});
    const Twin bias = s.normal(3, {columns});
    Tolerance allowed = tolerance(precision, inner);
    allowed.absolute *= 2;  // selu's slope reaches 1.76
    for (const ActivationKind kind :
         {ActivationKind::none, ActivationKind::relu, ActivationKind::tanh, ActivationKind::selu}) {
      const Twin c = s.empty({rows, columns});
      MatmulOptions options{
          .transpose_a = transpose_a, .transpose_b = transpose_b, .activation = kind};
      options.bias = bias.cpu;
      troupe::matmul(s.cpu, a.cpu, b.cpu, c.cpu, options);
      options.bias = bias.gpu;
      troupe::matmul(s.gpu, a.gpu, b.gpu, c.gpu, options);
      check_near(concat("c, ", to_string(kind)), c, allowed);
    }
    const Twin sum = s.normal(4, {rows, columns});
    const MatmulOptions options{
        .transpose_a = transpose_a, .transpose_b = transpose_b, .accumulate = true};
    troupe::matmul(s.cpu, a.cpu, b.cpu, sum.cpu, options);
    // Operands that were converted before, as layers do it, are the same operands.
    troupe::matmul(s.gpu, operand(s.gpu, a.gpu), b.gpu, sum.gpu, options);
    check_near("accumulated", sum, allowed);
  }
}

TEST_CASE("in bf16 a product is that of the rounded operands, added up in float32", "[gpu]") {
  if (const std::string why = missing(); !why.empty()) {
    return skip(why);
  }
  Streams s(Precision::bf16);
  for (const auto& [rows, columns, inner] : kSizes) {
    INFO(rows << " x " << columns << " x " << inner);
    const Twin a = s.normal(1, {rows, inner});
    const Twin b = s.normal(2, {columns, inner});
    const Twin c = s.empty({rows, columns});
    troupe::matmul(s.gpu, a.gpu, b.gpu, c.gpu, {.transpose_b = true});
    round_values(s.cpu, a.cpu);
    round_values(s.cpu, b.cpu);
    troupe::matmul(s.cpu, a.cpu, b.cpu, c.cpu, {.transpose_b = true});
    // Products of bfloat16 are exact in float32: the error of two float sums is left.
    check_near("c", c, {8e-6 * std::sqrt(double(inner)), 2e-6});
  }
}

TEST_CASE("column sums of bfloat16 are those of the rounded values", "[gpu]") {
  if (const std::string why = missing(); !why.empty()) {
    return skip(why);
  }
  Streams s(Precision::bf16);
  for (const auto& [rows, columns] : {std::pair{1, 1}, {33, 31}, {1009, 257}}) {
    const Twin x = s.normal(1, {rows, columns});
    const Twin out = s.normal(2, {columns});
    column_sum(s.gpu, operand(s.gpu, x.gpu), out.gpu, true);
    round_values(s.cpu, x.cpu);
    column_sum(s.cpu, x.cpu, out.cpu, true);
    check_near("out", out, {1e-4, 2e-6});
  }
}

TEST_CASE("streams of different precision do not disturb each other", "[gpu]") {
  if (const std::string why = missing(); !why.empty()) {
    return skip(why);
  }
  const auto product = [](Stream& stream) {
    const Tensor a = normal_tensor(stream, 1, {65, 129});
    const Tensor b = normal_tensor(stream, 2, {129, 33});
    const Tensor c = stream.allocate({65, 33});
    troupe::matmul(stream, a, b, c);
    return to_host(c);
  };
  Stream alone(kGpu);
  const Values exact = product(alone);
  Stream bf16(kGpu, Precision::bf16);
  Stream tf32(kGpu, Precision::tf32);
  Stream fp32(kGpu);
  const Values rounded = product(bf16);
  CHECK(product(fp32) == exact);
  CHECK(product(tf32) != rounded);
  CHECK(rounded != exact);
  CHECK(product(alone) == exact);
  CHECK(product(bf16) == rounded);
}

TEST_CASE("convolutions are near those in float32", "[gpu]") {
  if (const std::string why = missing(true); !why.empty()) {
    return skip(why);
  }
  const auto precision = GENERATE(Precision::tf32, Precision::bf16);
  Streams s(precision);
  for (const Images& i : {Images{{1, 1, 0}, 1, 1, 1, 1, 1},
                          {{5, 1, 2}, 3, 28, 28, 1, 6},
                          {{3, 2, 1}, 2, 9, 8, 5, 7},
                          {{3, 1, 1}, 2, 6, 6, 17, 13},
                          {{7, 2, 3}, 2, 33, 31, 3, 16},
                          {{1, 2, 0}, 2, 5, 5, 16, 3},
                          {{1, 1, 0}, 3, 7, 9, 65, 72},
                          {{1, 1, 0}, 2, 7, 6, 64, 75},
                          {{3, 1, 1}, 16, 17, 19, 64, 64}}) {
    INFO(to_string(precision) << ' ' << i.x() << " by " << i.w() << ", stride " << i.geometry.stride
                              << ", padding " << i.geometry.padding);
    const std::int64_t taps = i.geometry.kernel * i.geometry.kernel;
    const Twin x = s.normal(1, i.x());
    const Twin w = s.normal(2, i.w());
    const Twin bias = s.normal(3, {i.channels_out});
    const Twin y = s.empty(i.y());
    convolution_forward(s.cpu,
                        {.geometry = i.geometry,
                         .x = x.cpu,
                         .w = w.cpu,
                         .bias = bias.cpu,
                         .activation = ActivationKind::relu,
                         .y = y.cpu});
    convolution_forward(s.gpu,
                        {.geometry = i.geometry,
                         .x = x.gpu,
                         .w = w.gpu,
                         .bias = bias.gpu,
                         .activation = ActivationKind::relu,
                         .y = y.gpu});
    check_near("y", y, tolerance(precision, taps * i.channels));
    // As layers call it: the image converted once, the output left to batch normalization.
    const Tensor image = operand(s.gpu, x.gpu);
    const Tensor plain = s.gpu.allocate(i.y(), s.gpu.operand_type());
    convolution_forward(s.cpu,
                        {.geometry = i.geometry,
                         .x = x.cpu,
                         .w = w.cpu,
                         .bias = {},
                         .activation = ActivationKind::none,
                         .y = y.cpu});
    convolution_forward(s.gpu,
                        {.geometry = i.geometry,
                         .x = image,
                         .w = w.gpu,
                         .bias = {},
                         .activation = ActivationKind::none,
                         .y = plain});
    check_near("y, plain", {y.cpu, plain}, tolerance(precision, taps * i.channels));
    const Twin dy = s.normal(4, i.y());
    const Tensor error = operand(s.gpu, dy.gpu);
    const Twin dx = s.normal(5, i.x());
    troupe::convolution_input_gradient(s.cpu, i.geometry, dy.cpu, w.cpu, dx.cpu);
    troupe::convolution_input_gradient(s.gpu, i.geometry, error, w.gpu, dx.gpu);
    check_near("dx", dx, tolerance(precision, taps * i.channels_out));
    const Twin dw = s.normal(6, i.w());
    for (const bool accumulate : {false, true}) {
      troupe::convolution_weight_gradient(s.cpu, i.geometry, x.cpu, dy.cpu, dw.cpu, accumulate);
      troupe::convolution_weight_gradient(s.gpu, i.geometry, image, error, dw.gpu, accumulate);
      // What is added is the same sum once more, with the same error.
      const std::int64_t terms = i.y().elements() / i.channels_out;
      check_near("dw", dw, tolerance(precision, accumulate ? 4 * terms : terms));
    }
  }
}

TEST_CASE("batch normalization of bfloat16 is that of the rounded values", "[gpu]") {
  if (const std::string why = missing(); !why.empty()) {
    return skip(why);
  }
  Streams s(Precision::bf16);
  for (const auto& [rows, columns] : {std::pair{2, 1}, {33, 31}, {1009, 64}}) {
    const Twin x = s.normal(1, {rows, columns});
    const Tensor narrow = operand(s.gpu, x.gpu);
    round_values(s.cpu, x.cpu);
    const Twin gamma = s.normal(2, {columns});
    const Twin beta = s.normal(3, {columns});
    const Twin y = s.empty({rows, columns});
    const Twin mean = s.empty({columns});
    const Twin inverse = s.empty({columns});
    constexpr ActivationKind kRelu = ActivationKind::relu;
    batch_norm_forward(s.cpu,
                       kRelu,
                       {.x = x.cpu,
                        .gamma = gamma.cpu,
                        .beta = beta.cpu,
                        .epsilon = 1e-5f,
                        .y = y.cpu,
                        .mean = mean.cpu,
                        .inverse_deviation = inverse.cpu});
    batch_norm_forward(s.gpu,
                       kRelu,
                       {.x = narrow,
                        .gamma = gamma.gpu,
                        .beta = beta.gpu,
                        .epsilon = 1e-5f,
                        .y = y.gpu,
                        .mean = mean.gpu,
                        .inverse_deviation = inverse.gpu});
    // As parity_test.cpp: the same formulas, sums in other orders; of two rows deviations may be small.
    check_near("y", y, {2e-5, 1e-4});
    const Twin dy = s.normal(4, {rows, columns});
    const Twin dx = s.empty({rows, columns});
    const Tensor dx_narrow = s.gpu.allocate({rows, columns}, DType::bfloat16);
    const Twin dgamma = s.empty({columns});
    const Twin dbeta = s.empty({columns});
    batch_norm_backward(s.cpu,
                        y.cpu,
                        {.x = x.cpu,
                         .gamma = gamma.cpu,
                         .mean = mean.cpu,
                         .inverse_deviation = inverse.cpu,
                         .dy = dy.cpu,
                         .dx = dx.cpu,
                         .dgamma = dgamma.cpu,
                         .dbeta = dbeta.cpu});
    batch_norm_backward(s.gpu,
                        y.gpu,
                        {.x = narrow,
                         .gamma = gamma.gpu,
                         .mean = mean.gpu,
                         .inverse_deviation = inverse.gpu,
                         .dy = dy.gpu,
                         .dx = dx_narrow,
                         .dgamma = dgamma.gpu,
                         .dbeta = dbeta.gpu});
    check_near("dx", {dx.cpu, dx_narrow}, {1e-3, 5e-3});  // rounded: 2^-9
    check_near("dbeta", dbeta, {1e-4, 1e-4});
    check_near("dgamma", dgamma, {1e-3, 1e-3});
  }
}

TEST_CASE("attention is near that in float32", "[gpu]") {
  if (const std::string why = missing(); !why.empty()) {
    return skip(why);
  }
  Streams s(Precision::bf16);
  // Lengths around the tiles of 32, 64 and 128 and of several of them, heads of every width that a tile is made for, in eights
  // and not.
  for (const Heads& h : {Heads{1, 1, 1, 1},
                         Heads{2, 17, 3, 16},
                         Heads{1, 33, 2, 5},
                         Heads{2, 65, 2, 32},
                         Heads{1, 129, 3, 20},
                         Heads{3, 100, 2, 64},
                         Heads{1, 200, 1, 50},
                         Heads{2, 67, 1, 128},
                         Heads{1, 31, 2, 100},
                         Heads{1, 300, 2, 64},
                         Heads{1, 150, 1, 128},
                         Heads{2, 193, 2, 8},
                         Heads{1, 260, 1, 24},
                         Heads{2, 200, 6, 16, 2},
                         Heads{1, 150, 4, 128, 1},
                         Heads{1, 300, 2, 64, 1, false},
                         Heads{2, 67, 4, 5, 4, false}}) {
    INFO("B " << h.batch << " T " << h.length << " heads " << h.heads << " of " << h.head_size);
    const Twin qkv = s.normal(1, h.qkv());
    const Twin dy = s.normal(2, h.y());
    const Twin y = s.empty(h.y());
    const Twin log_sum = s.empty(h.log_sum());
    const Twin dqkv = s.empty(h.qkv());
    attention_forward(s.cpu, h.form(), qkv.cpu, y.cpu, log_sum.cpu);
    attention_forward(s.gpu, h.form(), qkv.gpu, y.gpu, log_sum.gpu);
    // The kernels' arithmetic, done on a CPU, errs by 0.01 in y and log_sum and 0.016 in dqkv on these shapes.
    check_near("y", y, {2e-2, 2e-2});
    check_near("log_sum", log_sum, {2e-2, 2e-2});
    attention_backward(s.cpu,
                       {.form = h.form(),
                        .qkv = qkv.cpu,
                        .y = y.cpu,
                        .log_sum = log_sum.cpu,
                        .dy = dy.cpu,
                        .dqkv = dqkv.cpu});
    attention_backward(s.gpu,
                       {.form = h.form(),
                        .qkv = qkv.gpu,
                        .y = y.gpu,
                        .log_sum = log_sum.gpu,
                        .dy = dy.gpu,
                        .dqkv = dqkv.gpu});
    check_near("dqkv", dqkv, {4e-2, 2e-2});
    const Values once = to_host(dqkv.gpu);
    attention_backward(s.gpu,
                       {.form = h.form(),
                        .qkv = qkv.gpu,
                        .y = y.gpu,
                        .log_sum = log_sum.gpu,
                        .dy = dy.gpu,
                        .dqkv = dqkv.gpu});
    CHECK(to_host(dqkv.gpu) == once);
  }
}

TEST_CASE("attention reads and writes bfloat16 as it rounds float32", "[gpu]") {
  if (const std::string why = missing(); !why.empty()) {
    return skip(why);
  }
  Stream stream(kGpu, Precision::bf16);
  const auto rounded = [&](const Tensor& x) {
    return operand(stream, x);
  };
  for (const Heads& h : {Heads{2, 70, 2, 16},
                         Heads{1, 140, 3, 64},
                         Heads{1, 20, 2, 5},
                         Heads{1, 150, 4, 16, 2, false}}) {
    INFO("B " << h.batch << " T " << h.length << " heads " << h.heads << " of " << h.head_size);
    const Tensor qkv = normal_tensor(stream, 1, h.qkv());
    const Tensor dy = normal_tensor(stream, 2, h.y());
    const Tensor y = stream.allocate(h.y());
    const Tensor log_sum = stream.allocate(h.log_sum());
    const Tensor dqkv = stream.allocate(h.qkv());
    attention_forward(stream, h.form(), qkv, y, log_sum);
    // One more element before: rows that do not begin at multiples of 16 bytes.
    const auto narrow = [&](std::int64_t offset, const Shape& shape) {
      return stream.allocate({shape.elements() + offset}, DType::bfloat16).view(offset, shape);
    };
    for (const std::int64_t offset : {0, 1}) {
      const Tensor own_qkv = narrow(offset, h.qkv());
      const Tensor own_y = narrow(offset, h.y());
      const Tensor own_log_sum = stream.allocate(h.log_sum());
      convert(stream, qkv, own_qkv);
      attention_forward(stream, h.form(), own_qkv, own_y, own_log_sum);
      CHECK(to_host(own_log_sum) == to_host(log_sum));
      CHECK(to_host(own_y) == to_host(rounded(y)));
      // The backward reads y as it is: the same y for both.
      const Tensor same_y = stream.allocate(h.y());
      convert(stream, own_y, same_y);
      const auto backward =
          [&](const Tensor& x, const Tensor& from_y, const Tensor& d, const Tensor& to) {
            attention_backward(
                stream,
                {.form = h.form(), .qkv = x, .y = from_y, .log_sum = log_sum, .dy = d, .dqkv = to});
          };
      const Tensor own_dy = narrow(offset, h.y());
      const Tensor own_dqkv = narrow(offset, h.qkv());
      convert(stream, dy, own_dy);
      backward(qkv, same_y, dy, dqkv);
      backward(own_qkv, own_y, own_dy, own_dqkv);
      CHECK(to_host(own_dqkv) == to_host(rounded(dqkv)));
    }
  }
  const Tensor narrow = stream.allocate({1, 2, 12}, DType::bfloat16);
  Stream exact(kGpu);
  CHECK_THROWS_WITH(
      attention_forward(exact, {}, narrow, exact.allocate({1, 2, 4}), exact.allocate({1, 1, 2})),
      says("qkv is bfloat16, not float32"));
}

}  // namespace precision_test
