// Every operation on CUDA against the CPU, on odd shapes. Skipped where there is no GPU.
#include "kernels/attention.hpp"
#include "kernels/combine.hpp"
#include "kernels/convert.hpp"
#include "kernels/device.hpp"
#include "kernels/dropout.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/embedding.hpp"
#include "kernels/late_gradient.hpp"
#include "kernels/lstm.hpp"
#include "kernels/normalization.hpp"
#include "kernels/orthogonalize.hpp"
#include "kernels/rotary.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"
#include "tests/support/skip.hpp"

#include <cmath>
#include <thread>

namespace parity_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::int64_t kSizes[] = {0, 1, 31, 33, 1023, 4099, 100'003};

/// The same values on both devices.
struct Twin {
  Tensor cpu;
  Tensor gpu;
};

struct Streams {
  Stream cpu{Device{}};
  Stream gpu{kGpu};

  Twin normal(std::uint64_t seed, Shape shape) {
    return {normal_tensor(cpu, seed, shape), normal_tensor(gpu, seed, shape)};
  }

  Twin empty(Shape shape, DType type = DType::float32) {
    return {cpu.allocate(shape, type), gpu.allocate(shape, type)};
  }
};

void check_same(const std::string& what, const Twin& twin, Tolerance tolerance) {
  check_close(what, to_host(twin.gpu), to_host(twin.cpu), tolerance);
}

}  // namespace

TEST_CASE("copies, fills and scalings agree", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Streams s;
  for (const std::int64_t n : kSizes) {
    const Twin x = s.normal(1, {n});
    check_same("from_host", x, {});
    const Tensor back = s.cpu.allocate({n});
    copy(s.gpu, x.gpu, back);
    CHECK(to_host(back) == to_host(x.cpu));
    const Tensor over = s.gpu.allocate({n});
    copy(s.gpu, x.cpu, over);
    CHECK(to_host(over) == to_host(x.cpu));
    const Tensor within = s.gpu.allocate({n});
    copy(s.gpu, over, within);
    CHECK(to_host(within) == to_host(x.cpu));
    const Tensor blocking = s.cpu.allocate({n});
    copy(s.cpu, within, blocking);
    CHECK(to_host(blocking) == to_host(x.cpu));
    scale(s.cpu, x.cpu, 0.3f);
    scale(s.gpu, x.gpu, 0.3f);
    check_same("scale", x, {});
    if (n > 3) {
      fill(s.cpu, x.cpu.view(1, {n - 2}), 2.5);
      fill(s.gpu, x.gpu.view(1, {n - 2}), 2.5);
      check_same("fill", x, {});
    }
    const Twin d = s.empty({n}, DType::float64);
    fill(s.cpu, d.cpu, 0.1);
    fill(s.gpu, d.gpu, 0.1);
    check_same("fill in double", d, {});
  }
}

TEMPLATE_LIST_TEST_CASE("activations agree", "[gpu]", Activations) {
  if (!gpu()) {
    return skip("no GPU");
  }
  Streams s;
  for (const std::int64_t n : kSizes) {
    const Twin x = s.normal(1, {n});
    const Twin y = s.empty({n});
    const Twin dy = s.normal(2, {n});
    activation_forward(s.cpu, TestType::kind, x.cpu, y.cpu);
    activation_forward(s.gpu, TestType::kind, x.gpu, y.gpu);
    // The same arithmetic; the GPU contracts a multiplication and an addition into one rounding.
    check_same("forward", y, {5e-7, 1e-6});
    const bool from_output = derivative_from_output(TestType::kind);
    activation_backward(s.cpu, TestType::kind, from_output ? y.cpu : x.cpu, dy.cpu, dy.cpu);
    activation_backward(s.gpu, TestType::kind, from_output ? y.gpu : x.gpu, dy.gpu, dy.gpu);
    check_same("backward", dy, {2e-6, 2e-6});
  }
}

TEST_CASE("matrix products agree", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Streams s;
  const auto transpose_a = GENERATE(false, true);
  const auto transpose_b = GENERATE(false, true);

  struct Size {
    std::int64_t rows, columns, inner;
  };

  for (const auto& [rows, columns, inner] : {Size{1, 1, 1},
                                             {1, 31, 33},
                                             {33, 1, 31},
                                             {31, 33, 1},
                                             {37, 64, 65},
                                             {128, 10, 84},
                                             {127, 257, 129}}) {
    INFO(rows << " x " << columns << " x " << inner << " transposed " << transpose_a
              << transpose_b);
    const Twin a = s.normal(1, transpose_a ? Shape{inner, rows} : Shape{rows, inner});
    const Twin b = s.normal(2, transpose_b ? Shape{columns, inner} : Shape{inner, columns});
    const Twin bias = s.normal(3, {columns});
    // The error of a float sum of K products of normal numbers, in two orders.
    const Tolerance tolerance{8e-6 * std::sqrt(double(inner)), 2e-6};
    for (const ActivationKind kind :
         {ActivationKind::none, ActivationKind::relu, ActivationKind::tanh, ActivationKind::selu}) {
      for (const bool with_bias : {false, true}) {
        const Twin c = s.empty({rows, columns});
        MatmulOptions options{
            .transpose_a = transpose_a, .transpose_b = transpose_b, .activation = kind};
        options.bias = with_bias ? bias.cpu : Tensor();
        troupe::matmul(s.cpu, a.cpu, b.cpu, c.cpu, options);
        options.bias = with_bias ? bias.gpu : Tensor();
        troupe::matmul(s.gpu, a.gpu, b.gpu, c.gpu, options);
        check_same(concat("c, ", to_string(kind)), c, tolerance);
      }
    }
    const Twin sum = s.normal(4, {rows, columns});
    const MatmulOptions options{
        .transpose_a = transpose_a, .transpose_b = transpose_b, .accumulate = true};
    troupe::matmul(s.cpu, a.cpu, b.cpu, sum.cpu, options);
    troupe::matmul(s.gpu, a.gpu, b.gpu, sum.gpu, options);
    check_same("accumulated", sum, tolerance);
  }
}

TEST_CASE("reductions agree", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Streams s;
  for (const std::int64_t columns : {1, 6, 31, 64, 257, 1024}) {
    for (const std::int64_t rows : {1, 33, 128, 1009}) {
      INFO(rows << " x " << columns);
      const Twin x = s.normal(1, {rows, columns});
      const Twin out = s.normal(2, {columns});
      for (const bool accumulate : {false, true}) {
        column_sum(s.cpu, x.cpu, out.cpu, accumulate);
        column_sum(s.gpu, x.gpu, out.gpu, accumulate);
        check_same("column_sum", out, {1e-4, 2e-6});
      }
    }
  }
  for (const std::int64_t n : kSizes) {
    const Twin a = s.normal(1, {n});
    const Twin b = s.normal(2, {n});
    const std::vector<Part> parts{{0, n}, {n / 3, n - n / 3}, {n / 2, 0}, {n / 2, n > 0 ? 1 : 0}};
    const Twin squares = s.empty({4}, DType::float64);
    sum_of_squares(s.cpu, a.cpu, parts, squares.cpu);
    sum_of_squares(s.gpu, a.gpu, parts, squares.gpu);
    check_same("sum_of_squares", squares, {0, 1e-12});
    const Twin distance = s.empty({1}, DType::float64);
    squared_distance(s.cpu, a.cpu, b.cpu, distance.cpu);
    squared_distance(s.gpu, a.gpu, b.gpu, distance.gpu);
    check_same("squared_distance", distance, {0, 1e-12});
  }
}

TEST_CASE("losses agree", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Streams s;
  for (const std::int64_t classes : {1, 2, 10, 33, 1100, 4100}) {
    for (const std::int64_t rows : {1, 7, 128}) {
      INFO(rows << " x " << classes);
      const Twin x = s.normal(1, {rows, classes});
      const Twin target = s.normal(2, {rows, classes});
      const Twin labels{random_labels(s.cpu, 3, rows, classes),
                        random_labels(s.gpu, 3, rows, classes)};
      const Twin gradient = s.empty({rows, classes});
      const Twin result = s.empty({2}, DType::float64);
      for (const float smoothing : {0.1f, 0.0f}) {
        troupe::softmax_cross_entropy(
            s.cpu, x.cpu, labels.cpu, gradient.cpu, result.cpu, smoothing);
        troupe::softmax_cross_entropy(
            s.gpu, x.gpu, labels.gpu, gradient.gpu, result.gpu, smoothing);
        check_same("cross-entropy", result, {1e-5, 2e-6});
        check_same("dlogits", gradient, {1e-6 / double(rows), 4e-6});
      }
      troupe::softmax_cross_entropy(s.gpu, x.gpu, labels.gpu, Tensor(), result.gpu);
      check_same("cross-entropy without gradient", result, {1e-5, 2e-6});
      const Twin statistics = s.empty({rows, 2});
      softmax_statistics(s.cpu, x.cpu, statistics.cpu);
      softmax_statistics(s.gpu, x.gpu, statistics.gpu);
      check_same("statistics", statistics, {1e-6, 4e-6});
      const auto parted = [&](const Tensor& logits,
                              const Tensor& of_rows,
                              const Tensor& label,
                              const Tensor& dlogits,
                              const Tensor& to) {
        return PartedCrossEntropy{.logits = logits,
                                  .statistics = of_rows,
                                  .labels = label,
                                  .dlogits = dlogits,
                                  .result = to,
                                  .classes = classes + 2,
                                  .smoothing = 0.1f};
      };
      parted_cross_entropy(s.cpu,
                           parted(x.cpu, statistics.cpu, labels.cpu, gradient.cpu, result.cpu));
      parted_cross_entropy(s.gpu,
                           parted(x.gpu, statistics.gpu, labels.gpu, gradient.gpu, result.gpu));
      check_same("cross-entropy of parts", result, {1e-5, 4e-6});
      check_same("dlogits of parts", gradient, {1e-6 / double(rows), 8e-6});
      troupe::squared_error(s.cpu, x.cpu, target.cpu, gradient.cpu, result.cpu);
      troupe::squared_error(s.gpu, x.gpu, target.gpu, gradient.gpu, result.gpu);
      check_same("squared error", result, {1e-12, 1e-6});
      check_same("dy", gradient, {1e-7, 1e-6});
    }
  }
}

TEST_CASE("attention agrees", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Streams s;
  // Lengths around the tiles of 32 and 64, and heads of every width that a tile is made for.
  for (const Heads& h : {Heads{1, 1, 1, 1},
                         Heads{2, 17, 3, 16},
                         Heads{1, 33, 2, 5},
                         Heads{2, 65, 2, 32},
                         Heads{1, 129, 3, 20},
                         Heads{3, 100, 2, 64},
                         Heads{1, 200, 1, 50},
                         Heads{2, 67, 1, 128},
                         Heads{1, 31, 2, 100},
                         Heads{2, 70, 6, 16, 2},
                         Heads{1, 130, 2, 64, 1, false},
                         Heads{2, 67, 4, 5, 4, false}}) {
    INFO("B " << h.batch << " T " << h.length << " heads " << h.heads << " of " << h.head_size);
    const Twin qkv = s.normal(1, h.qkv());
    const Twin dy = s.normal(2, h.y());
    const Twin y = s.empty(h.y());
    const Twin log_sum = s.empty(h.log_sum());
    const Twin dqkv = s.empty(h.qkv());
    attention_forward(s.cpu, h.form(), qkv.cpu, y.cpu, log_sum.cpu);
    attention_forward(s.gpu, h.form(), qkv.gpu, y.gpu, log_sum.gpu);
    // The same products in other orders: as attention_test.cpp derives it, twice.
    check_same("y", y, {1e-5, 4e-6});
    check_same("log_sum", log_sum, {8e-6, 2e-6});
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
    check_same("dqkv", dqkv, {8e-6 * std::sqrt(double(h.length + h.head_size)), 8e-6});
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

TEST_CASE("gates, rotary positions and copies of columns agree", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Streams s;
  for (const std::int64_t width : {1, 12, 33}) {
    const Twin x = s.normal(1, {37, 2 * width});
    const Twin dy = s.normal(2, {37, width});
    const Twin y = s.empty({37, width});
    const Twin dx = s.empty({37, 2 * width});
    gate_forward(s.cpu, ActivationKind::silu, x.cpu, y.cpu);
    gate_forward(s.gpu, ActivationKind::silu, x.gpu, y.gpu);
    check_same("y", y, {1e-6, 1e-6});
    gate_backward(s.cpu, ActivationKind::silu, x.cpu, dy.cpu, dx.cpu);
    gate_backward(s.gpu, ActivationKind::silu, x.gpu, dy.gpu, dx.gpu);
    check_same("dx", dx, {3e-6, 2e-6});
    copy_columns(s.cpu, dy.cpu, width / 2, dx.cpu, width, width / 2);
    copy_columns(s.gpu, dy.gpu, width / 2, dx.gpu, width, width / 2);
    check_same("columns", dx, {3e-6, 2e-6});
  }
  const Twin x = s.normal(3, {2, 130, 3 * 10 + 7});
  const Twin y = s.empty(x.cpu.shape());
  for (const bool back : {false, true}) {
    const Rotary turn{.heads = 3, .head_size = 10, .back = back};
    rotary(s.cpu, turn, x.cpu, y.cpu);
    rotary(s.gpu, turn, x.gpu, y.gpu);
    check_same("rotary", y, {1e-6, 2e-7});  // cosines whose last bit differs
  }
  rotary(s.gpu, {.heads = 3, .head_size = 10, .back = true}, x.gpu, x.gpu);
  CHECK(to_host(x.gpu) == to_host(y.gpu));
}

TEST_CASE("dropout and addition agree in every bit", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Streams s;
  const RandomStream random(5, Purpose::test);
  for (const std::int64_t n : kSizes) {
    const Twin x = s.normal(1, {n});
    const Twin y = s.empty({n});
    dropout(s.cpu, random, 12'345, 0.3f, x.cpu, y.cpu);
    dropout(s.gpu, random, 12'345, 0.3f, x.gpu, y.gpu);
    check_same("dropout", y, {});
    for (const ActivationKind kind : {ActivationKind::none, ActivationKind::relu}) {
      const Twin other = s.normal(2, {n});
      add(s.cpu, x.cpu, other.cpu, kind, y.cpu);
      add(s.gpu, x.gpu, other.gpu, kind, y.gpu);
      check_same("add", y, {});
      add(s.cpu, x.cpu, other.cpu, kind, other.cpu);
      add(s.gpu, x.gpu, other.gpu, kind, other.gpu);
      check_same("add in place", other, {});
    }
  }
}

TEST_CASE("NaN, infinities and -0 pass through on a GPU as on the CPU", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Streams s;
  const std::vector<float> values{
      NAN, INFINITY, -INFINITY, -0.0f, 0.0f, 1e-40f, -1e-40f, 3e38f, -3e38f, 1, -1};
  const auto n = static_cast<std::int64_t>(values.size());
  const auto run = [&](Stream& stream) {
    std::vector<float> bits;
    const auto keep = [&](const Tensor& y) {
      for (const double value : to_host(y)) {
        bits.push_back(std::isnan(value) ? 12345.0f : static_cast<float>(value));
        bits.push_back(std::signbit(value) && !std::isnan(value) ? -1.0f : 1.0f);
      }
    };
    const Tensor x = from_host(stream, std::span<const float>(values), {n});
    const Tensor y = stream.allocate({n});
    for (const ActivationKind kind : {ActivationKind::none, ActivationKind::relu}) {
      add(stream, x, x, kind, y);
      keep(y);
      activation_forward(stream, kind, x, y);
      keep(y);
      activation_backward(stream, kind, y, x, y);
      keep(y);
    }
    dropout(stream, RandomStream(5, Purpose::test), 0, 0.5f, x, y);
    keep(y);
    combine(stream, {{0.5, x}, {2.0, x}}, y);
    keep(y);
    damp_by_gap(stream, 0.3f, x, x, y, y);
    keep(y);
    const Tensor narrow = stream.allocate({n}, DType::bfloat16);
    convert(stream, x, narrow);
    convert(stream, narrow, y);
    keep(y);
    return bits;
  };
  CHECK(run(s.gpu) == run(s.cpu));
}

TEST_CASE("sums of scaled tensors and late gradients agree in every bit", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Streams s;
  for (const std::int64_t n : kSizes) {
    std::vector<Term> cpu;
    std::vector<Term> gpu;
    for (std::size_t count = 1; count <= kTermsMax; ++count) {
      const Twin x = s.normal(count, {n});
      cpu.push_back({0.3 + static_cast<double>(count), x.cpu});
      gpu.push_back({0.3 + static_cast<double>(count), x.gpu});
      const Twin out = s.empty({n});
      combine(s.cpu, cpu, out.cpu);
      combine(s.gpu, gpu, out.gpu);
      check_same("combine", out, {});
    }
    const Twin g = s.normal(11, {n});
    const Twin w = s.normal(12, {n});
    const Twin read = s.normal(13, {n});
    const Twin out = s.empty({n});
    for (const Compensation kind :
         {Compensation::constant, Compensation::adaptive, Compensation::absolute}) {
      const bool averages = kind == Compensation::adaptive;
      Twin kept = s.empty({n});
      fill(s.cpu, kept.cpu, 0.5);
      fill(s.gpu, kept.gpu, 0.5);
      if (!averages) {
        kept = {};
      }
      const CompensationScalars scalars{.lambda = 0.4f, .decay = 0.9f};
      compensate_delay(s.cpu,
                       {.kind = kind,
                        .scalars = scalars,
                        .g = g.cpu,
                        .w = w.cpu,
                        .w_read = read.cpu,
                        .mean_square = kept.cpu,
                        .out = out.cpu});
      compensate_delay(s.gpu,
                       {.kind = kind,
                        .scalars = scalars,
                        .g = g.gpu,
                        .w = w.gpu,
                        .w_read = read.gpu,
                        .mean_square = kept.gpu,
                        .out = out.gpu});
      check_same("compensate_delay", out, {});
      if (averages) {
        check_same("mean square", kept, {});
      }
    }
    damp_by_gap(s.cpu, 0.3f, g.cpu, w.cpu, read.cpu, out.cpu);
    damp_by_gap(s.gpu, 0.3f, g.gpu, w.gpu, read.gpu, out.gpu);
    check_same("damp_by_gap", out, {});
    const Twin steps = s.empty({n});
    fill(s.cpu, steps.cpu, 0.5);
    fill(s.gpu, steps.gpu, 0.5);
    average_square_step(s.cpu, 0.9f, 3, w.cpu, read.cpu, steps.cpu);
    average_square_step(s.gpu, 0.9f, 3, w.gpu, read.gpu, steps.gpu);
    check_same("average_square_step", steps, {});
    const OwnStepScalars own{.rate = 0.1f, .correction = 2, .weight_decay = 0.1f};
    damp_by_own_steps(s.cpu,
                      {.scalars = own,
                       .g = g.cpu,
                       .w = w.cpu,
                       .aim = w.cpu,
                       .w_read = read.cpu,
                       .square = steps.cpu,
                       .out = out.cpu});
    damp_by_own_steps(s.gpu,
                      {.scalars = own,
                       .g = g.gpu,
                       .w = w.gpu,
                       .aim = w.gpu,
                       .w_read = read.gpu,
                       .square = steps.gpu,
                       .out = out.gpu});
    check_same("damp_by_own_steps", out, {});
    const Twin square = s.empty({n});
    const Twin mean = s.empty({n});
    const Twin deviation = s.empty({n});
    for (const Twin& x : {square, mean, deviation}) {
      fill(s.cpu, x.cpu, 0.5);
      fill(s.gpu, x.gpu, 0.5);
    }
    const DeviationScalars scalars{.decay = 0.9f, .deviation_decay = 0.8f, .epsilon = 1e-4f};
    divide_by_deviation(s.cpu,
                        {.scalars = scalars,
                         .g = g.cpu,
                         .square = square.cpu,
                         .mean = mean.cpu,
                         .deviation = deviation.cpu,
                         .out = out.cpu});
    divide_by_deviation(s.gpu,
                        {.scalars = scalars,
                         .g = g.gpu,
                         .square = square.gpu,
                         .mean = mean.gpu,
                         .deviation = deviation.gpu,
                         .out = out.gpu});
    for (const Twin& x : {square, mean, deviation, out}) {
      check_same("divide_by_deviation", x, {});
    }
  }
}

// A grid has 4096 blocks at most: what goes beyond it comes in a second round of the same threads.
TEST_CASE("what fills a grid more than once agrees", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Streams s;
  const std::int64_t n = 4096 * 256 * 4 + 4098;  // 16 bytes a thread
  const Twin x = s.normal(1, {n + 1});
  const Twin y = s.normal(2, {n + 1});
  for (const std::int64_t offset : {0, 1}) {  // and 4 bytes a thread
    const auto part = [&](const Tensor& whole) {
      return whole.view(offset, {n});
    };
    scale(s.cpu, part(x.cpu), 0.3f);
    scale(s.gpu, part(x.gpu), 0.3f);
    add(s.cpu, part(x.cpu), part(y.cpu), ActivationKind::relu, part(y.cpu));
    add(s.gpu, part(x.gpu), part(y.gpu), ActivationKind::relu, part(y.gpu));
    check_same("scale", x, {});
    check_same("add", y, {});
  }
  const Twin image = s.normal(3, {2, 512, 512, 3});
  const Twin pooled = s.empty({2, 511, 511, 3});
  const ConvolutionGeometry g{2, 1, 0};
  average_pool_forward(s.cpu, g, image.cpu, pooled.cpu);
  average_pool_forward(s.gpu, g, image.gpu, pooled.gpu);
  check_same("average pooling", pooled, {});
  const Heads h{64, 130, 4, 1};  // more rows than the delta of the backward has warps
  const Twin qkv = s.normal(4, h.qkv());
  const Twin dy = s.normal(5, h.y());
  const Twin out = s.empty(h.y());
  const Twin log_sum = s.empty(h.log_sum());
  const Twin dqkv = s.empty(h.qkv());
  const auto attend = [&](Stream& stream, Tensor Twin::*on) {
    attention_forward(stream, h.form(), qkv.*on, out.*on, log_sum.*on);
    attention_backward(stream,
                       {.form = h.form(),
                        .qkv = qkv.*on,
                        .y = out.*on,
                        .log_sum = log_sum.*on,
                        .dy = dy.*on,
                        .dqkv = dqkv.*on});
  };
  attend(s.cpu, &Twin::cpu);
  attend(s.gpu, &Twin::gpu);
  check_same("attention", out, {1e-5, 4e-6});
  check_same("dqkv", dqkv, {8e-6 * std::sqrt(double(h.length + h.head_size)), 8e-6});
}

TEST_CASE("elements beyond 2^31 are reached", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  if (emulated()) {
    return;  // It has no room for them; a skip would hide what the other cases found.
  }
  constexpr std::size_t kBytes = std::size_t{40} << 30;
  for (const DeviceInfo& device : devices()) {
    if (device.device == kGpu && device.memory_bytes < kBytes) {
      return skip("a GPU of less than 40 GiB");
    }
  }
  Stream stream{kGpu};
  const std::int64_t columns = 50'257;
  const std::int64_t rows = (std::int64_t{1} << 31) / columns + 8;
  const std::int64_t n = rows * columns;
  const Tensor x = stream.allocate({rows, columns});
  const auto last = [&] {
    return to_host(x.view(n - 3, {3}));
  };
  fill(stream, x, 3);
  scale(stream, x, 0.5f);
  CHECK(last() == Values(3, 1.5));
  const Tensor sum = stream.allocate({1}, DType::float64);
  sum_of_squares(stream, x.reshape({n}), std::vector<Part>{{0, n}}, sum);
  CHECK(to_host(sum)[0] == 2.25 * static_cast<double>(n));
  const Tensor of_columns = stream.allocate({columns});
  column_sum(stream, x, of_columns, false);
  CHECK(to_host(of_columns) == Values(static_cast<std::size_t>(columns), 1.5 * double(rows)));
  const Tensor narrow = stream.allocate({rows, columns}, DType::bfloat16);
  convert(stream, x, narrow);
  CHECK(to_host(narrow.view(n - 3, {3})) == Values(3, 1.5));
  const Tensor per_row = stream.allocate({rows});
  const Tensor gamma = stream.allocate({columns});
  fill(stream, gamma, 0.25);
  layer_norm_forward(stream,
                     {.x = x,
                      .gamma = gamma,
                      .beta = gamma,
                      .epsilon = 0.01f,
                      .y = x,
                      .mean = per_row,
                      .inverse_deviation = stream.allocate({rows})});
  CHECK(to_host(per_row) == Values(static_cast<std::size_t>(rows), 1.5));
  CHECK(last() == Values(3, 0.25));
  const Tensor labels = random_labels(stream, 1, rows, columns);
  const Tensor result = stream.allocate({2}, DType::float64);
  troupe::softmax_cross_entropy(stream, x, labels, x, result);
  check_close("cross-entropy", {to_host(result)[0]}, {double(rows) * std::log(columns)}, {0, 1e-9});
  const double share = 1.0 / double(columns) / double(rows);  // of a class that is not the label
  const double label = to_host(labels.view(rows - 1, {1}))[0];
  Values expected(3, share);
  for (std::int64_t c = columns - 3; c < columns; ++c) {
    if (label == double(c)) {
      expected[static_cast<std::size_t>(c - (columns - 3))] -= 1.0 / double(rows);
    }
  }
  check_close("dlogits", last(), expected, {0, 1e-5});
}

TEST_CASE("batch normalization agrees", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Streams s;
  const float epsilon = 0.01f;
  for (const std::int64_t columns : {1, 6, 31, 64, 257}) {
    for (const std::int64_t rows : {1, 33, 1009, 20'011}) {
      for (const bool relu : {false, true}) {
        INFO(rows << " x " << columns << " relu " << relu);
        const ActivationKind kind = relu ? ActivationKind::relu : ActivationKind::none;
        const Twin x = s.normal(1, {rows, columns});
        const Twin gamma = s.normal(2, {columns});
        const Twin beta = s.normal(3, {columns});
        const Twin y = s.empty({rows, columns});
        const Twin mean = s.empty({columns});
        const Twin inverse = s.empty({columns});
        const Twin running_mean = s.normal(4, {columns});
        const Twin running_variance = s.empty({columns});
        const Twin dy = s.normal(5, {rows, columns});
        const Twin dgamma = s.empty({columns});
        const Twin dbeta = s.empty({columns});
        const auto run = [&](Stream& stream, Tensor Twin::*on) {
          fill(stream, running_variance.*on, 1.5);
          batch_norm_forward(stream,
                             kind,
                             {.x = x.*on,
                              .gamma = gamma.*on,
                              .beta = beta.*on,
                              .epsilon = epsilon,
                              .y = y.*on,
                              .mean = mean.*on,
                              .inverse_deviation = inverse.*on});
          batch_norm_running(stream,
                             {.mean = mean.*on,
                              .inverse_deviation = inverse.*on,
                              .rows = rows,
                              .epsilon = epsilon,
                              .momentum = 0.1f,
                              .running_mean = running_mean.*on,
                              .running_variance = running_variance.*on,
                              .next_mean = running_mean.*on,
                              .next_variance = running_variance.*on});
        };
        run(s.cpu, &Twin::cpu);
        run(s.gpu, &Twin::gpu);
        // Both sum in double, in two orders, and round to float: a unit in the last place at most,
        // which (x - mean) shows.
        check_same("mean", mean, {1e-12, 2e-7});
        check_same("inverse_deviation", inverse, {0, 2e-7});
        check_same("y", y, {8e-6, 2e-6});
        check_same("running mean", running_mean, {2e-7, 2e-7});
        check_same("running variance", running_variance, {0, 1e-6});
        // From the same statistics, so that relu cuts off the same.
        copy(s.gpu, y.cpu, y.gpu);
        Values sum_of_dy(static_cast<std::size_t>(columns));
        const Values of_dy = to_host(dy.cpu);
        const Values of_y = to_host(y.cpu);
        for (std::size_t i = 0; i < of_dy.size(); ++i) {
          sum_of_dy[i % sum_of_dy.size()] += relu && of_y[i] <= 0 ? 0 : of_dy[i];
        }
        const auto back = [&](Stream& stream, Tensor Twin::*on) {
          batch_norm_backward(stream,
                              relu ? y.*on : Tensor(),
                              {.x = x.*on,
                               .gamma = gamma.*on,
                               .mean = mean.*on,
                               .inverse_deviation = inverse.*on,
                               .dy = dy.*on,
                               .dx = dy.*on,
                               .dgamma = dgamma.*on,
                               .dbeta = dbeta.*on});
          batch_norm_infer(stream,
                           {.x = x.*on,
                            .gamma = gamma.*on,
                            .beta = beta.*on,
                            .running_mean = running_mean.*on,
                            .running_variance = running_variance.*on,
                            .epsilon = epsilon,
                            .activation = kind,
                            .y = y.*on});
        };
        back(s.cpu, &Twin::cpu);
        back(s.gpu, &Twin::gpu);
        check_same("dx", dy, {3e-5, 2e-6});
        check_same("dgamma", dgamma, {5e-5, 2e-6});
        // Rounded once to float. The CPU adds four terms at a time in float: three roundings that err by 2e-8 of
        // terms and sums of a size of 1 to 2 make 4e-8 sqrt(rows) of a column, of which this is five times.
        check_close("dbeta", to_host(dbeta.gpu), sum_of_dy, {1e-12, 6e-8});
        check_close("dbeta", to_host(dbeta.cpu), sum_of_dy, {2e-7 * std::sqrt(double(rows)), 6e-8});
        check_same("infer", y, {8e-6, 2e-6});
      }
    }
  }
}

TEST_CASE("layer and group normalization agree", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Streams s;
  const float epsilon = 0.01f;

  struct Size {
    std::int64_t batch, pixels, channels, groups;  // no groups: layer normalization of the rows
    bool centred = true;                           // else RMS
  };

  // Groups of up to 2048 elements belong to a warp, larger ones to a block.
  for (const auto& [batch, pixels, channels, groups, centred] : {Size{1, 1, 1, 0},
                                                                 {130, 1, 384, 0, false},
                                                                 {3, 1, 2051, 0, false},
                                                                 {7, 1, 31, 0},
                                                                 {130, 1, 384, 0},
                                                                 {0, 1, 16, 0},
                                                                 {3, 1, 2051, 0},
                                                                 {2, 9, 6, 3},
                                                                 {3, 49, 33, 11},
                                                                 {2, 5, 64, 64},
                                                                 {3, 1, 320, 32},
                                                                 {2, 300, 24, 2},
                                                                 {2, 33, 1100, 1}}) {
    INFO(batch << " x " << pixels << " x " << channels << " in " << groups);
    const bool layer = groups == 0;
    const Shape shape = layer ? Shape{batch, channels} : Shape{batch, pixels, channels};
    const Shape statistics = layer ? Shape{batch} : Shape{batch, groups};
    const Twin x = s.normal(1, shape);
    const Twin gamma = s.normal(2, {channels});
    const Twin beta = s.normal(3, {channels});
    const Twin y = s.empty(shape);
    const Twin beta_given = centred ? beta : Twin{};
    const Twin mean = centred ? s.empty(statistics) : Twin{};
    const Twin inverse = s.empty(statistics);
    const Twin dy = s.normal(5, shape);
    const Twin dgamma = s.normal(6, {channels});
    const Twin dbeta = centred ? s.normal(7, {channels}) : Twin{};
    const auto run = [&, n = groups](Stream& stream, Tensor Twin::*on) {
      if (layer) {
        layer_norm_forward(stream,
                           {.x = x.*on,
                            .gamma = gamma.*on,
                            .beta = beta_given.*on,
                            .epsilon = epsilon,
                            .y = y.*on,
                            .mean = mean.*on,
                            .inverse_deviation = inverse.*on});
        layer_norm_backward(stream,
                            {.x = x.*on,
                             .gamma = gamma.*on,
                             .mean = mean.*on,
                             .inverse_deviation = inverse.*on,
                             .dy = dy.*on,
                             .dx = dy.*on,
                             .dgamma = dgamma.*on,
                             .dbeta = dbeta.*on});
      } else {
        group_norm_forward(stream,
                           n,
                           {.x = x.*on,
                            .gamma = gamma.*on,
                            .beta = beta_given.*on,
                            .epsilon = epsilon,
                            .y = y.*on,
                            .mean = mean.*on,
                            .inverse_deviation = inverse.*on});
        group_norm_backward(stream,
                            n,
                            {.x = x.*on,
                             .gamma = gamma.*on,
                             .mean = mean.*on,
                             .inverse_deviation = inverse.*on,
                             .dy = dy.*on,
                             .dx = dy.*on,
                             .dgamma = dgamma.*on,
                             .dbeta = dbeta.*on});
      }
    };
    run(s.cpu, &Twin::cpu);
    run(s.gpu, &Twin::gpu);
    check_same("inverse_deviation", inverse, {0, 2e-6});
    check_same("y", y, {8e-6, 2e-6});
    check_same("dx", dy, {3e-5, 2e-6});
    check_same("dgamma", dgamma, {5e-5, 2e-6});
    if (centred) {
      check_same("mean", mean, {2e-7, 2e-7});
      check_same("dbeta", dbeta, {5e-5, 2e-6});
    }
  }
}

TEST_CASE("average pooling agrees in every bit", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Streams s;
  for (const std::int64_t channels : {1, 6, 33}) {
    for (const ConvolutionGeometry& g : {ConvolutionGeometry{2, 2, 0},
                                         ConvolutionGeometry{3, 2, 1},
                                         ConvolutionGeometry{3, 1, 1},
                                         ConvolutionGeometry{2, 3, 0},
                                         ConvolutionGeometry{7, 7, 0}}) {
      INFO(channels << " channels, kernel " << g.kernel << " stride " << g.stride);
      const Shape pooled{3, g.output(9), g.output(7), channels};
      const Twin x = s.normal(1, {3, 9, 7, channels});
      const Twin y = s.normal(2, pooled);
      average_pool_forward(s.cpu, g, x.cpu, y.cpu);
      average_pool_forward(s.gpu, g, x.gpu, y.gpu);
      check_same("y", y, {});
      average_pool_backward(s.cpu, g, y.cpu, x.cpu);
      average_pool_backward(s.gpu, g, y.gpu, x.gpu);
      check_same("dx", x, {});
    }
  }
}

TEST_CASE("embeddings agree in every bit", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Streams s;

  struct Size {
    std::int64_t batch, times, rows, channels;
  };

  for (const auto& [batch, times, rows, channels] :
       {Size{1, 1, 1, 1}, {0, 5, 3, 4}, {4, 31, 65, 33}, {9, 128, 7, 300}, {4, 31, 8195, 33}}) {
    INFO(batch << " x " << times << " of " << rows << " x " << channels);
    const std::int64_t places = batch * times;
    const Twin ids{random_labels(s.cpu, 1, places, rows).reshape({batch, times}),
                   random_labels(s.gpu, 1, places, rows).reshape({batch, times})};
    const Twin table = s.normal(2, {rows, channels});
    const Twin positions = s.normal(3, {times + 3, channels});
    const Twin y = s.empty({batch, times, channels});
    for (const bool with_positions : {false, true}) {
      const auto of = [&](const Tensor& x) {
        return with_positions ? x : Tensor();
      };
      embedding_forward(s.cpu, ids.cpu, table.cpu, of(positions.cpu), y.cpu);
      embedding_forward(s.gpu, ids.gpu, table.gpu, of(positions.gpu), y.gpu);
      check_same("y", y, {});
      embedding_forward(s.cpu, ids.cpu, table.cpu, of(positions.cpu), y.cpu, 2);
      embedding_forward(s.gpu, ids.gpu, table.gpu, of(positions.gpu), y.gpu, 2);
      check_same("y of a part of the table", y, {});
    }
    for (const bool accumulate : {false, true}) {
      embedding_gradient(s.cpu, ids.cpu, y.cpu, table.cpu, positions.cpu, accumulate);
      embedding_gradient(s.gpu, ids.gpu, y.gpu, table.gpu, positions.gpu, accumulate);
      check_same("dtable", table, {});
      check_same("dpositions", positions, {});
      embedding_gradient(s.cpu, ids.cpu, y.cpu, table.cpu, positions.cpu, accumulate, 2);
      embedding_gradient(s.gpu, ids.gpu, y.gpu, table.gpu, positions.gpu, accumulate, 2);
      check_same("dtable of a part", table, {});
    }
  }
}

TEST_CASE("an id that the table does not have is a NaN on a GPU", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Stream stream{kGpu};
  const std::vector<std::int32_t> values{1, -1, 4, 0};
  const Tensor ids = from_host(stream, std::span<const std::int32_t>(values), {1, 4});
  const Tensor table = normal_tensor(stream, 1, {4, 1});
  const Tensor y = stream.allocate({1, 4, 1});
  embedding_forward(stream, ids, table, Tensor(), y);
  const Values rows = to_host(y);
  CHECK(rows[0] == to_host(table)[1]);
  CHECK(std::isnan(rows[1]));
  CHECK(std::isnan(rows[2]));
  fill(stream, y, 1);
  embedding_gradient(stream, ids, y, table, Tensor(), false);
  CHECK(to_host(table) == Values{1, 1, 0, 0});
}

TEST_CASE("lstm agrees", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Streams s;
  for (const Lstm& l : {Lstm{1, 1, 1, 1}, Lstm{3, 5, 7, 33}, Lstm{33, 4, 65, 31}}) {
    INFO("B " << l.batch << " T " << l.length << " I " << l.inputs << " H " << l.cells);
    const Twin x = s.normal(1, {l.batch, l.length, l.inputs});
    const Twin w_input = s.normal(2, {4 * l.cells, l.inputs});
    const Twin w_hidden = s.normal(3, {4 * l.cells, l.cells});
    const Twin bias = s.normal(4, {4 * l.cells});
    const Twin dy = s.normal(5, {l.batch, l.length, l.cells});
    for (const Twin& w : {w_input, w_hidden}) {
      const float factor = 1.0f / std::sqrt(static_cast<float>(w.cpu.shape()[1]));
      scale(s.cpu, w.cpu, factor);
      scale(s.gpu, w.gpu, factor);
    }
    const Twin y = s.empty(dy.cpu.shape());
    const Twin gates = s.empty({l.length, l.batch, 4 * l.cells});
    const Twin cells = s.empty({l.length, l.batch, l.cells});
    lstm_forward(s.cpu,
                 {.x = x.cpu,
                  .w_input = w_input.cpu,
                  .w_hidden = w_hidden.cpu,
                  .bias = bias.cpu,
                  .y = y.cpu,
                  .gates = gates.cpu,
                  .cells = cells.cpu});
    lstm_forward(s.gpu,
                 {.x = x.gpu,
                  .w_input = w_input.gpu,
                  .w_hidden = w_hidden.gpu,
                  .bias = bias.gpu,
                  .y = y.gpu,
                  .gates = gates.gpu,
                  .cells = cells.gpu});
    // Products of normalised weights err by some 1e-6, and a step hands on less than it gets.
    check_same("y", y, {1e-5, 1e-5});
    check_same("gates", gates, {1e-5, 1e-5});
    check_same("cells", cells, {1e-5, 1e-5});
    const Twin dgates = s.empty(gates.cpu.shape());
    const Twin dx = s.empty(x.cpu.shape());
    lstm_input_gradient(s.cpu,
                        {.w_input = w_input.cpu,
                         .w_hidden = w_hidden.cpu,
                         .gates = gates.cpu,
                         .cells = cells.cpu,
                         .dy = dy.cpu,
                         .dgates = dgates.cpu,
                         .dx = dx.cpu});
    lstm_input_gradient(s.gpu,
                        {.w_input = w_input.gpu,
                         .w_hidden = w_hidden.gpu,
                         .gates = gates.gpu,
                         .cells = cells.gpu,
                         .dy = dy.gpu,
                         .dgates = dgates.gpu,
                         .dx = dx.gpu});
    check_same("dgates", dgates, {2e-5, 2e-5});
    check_same("dx", dx, {2e-5, 2e-5});
    const Twin dw_input = s.normal(6, w_input.cpu.shape());
    const Twin dw_hidden = s.normal(7, w_hidden.cpu.shape());
    const Twin dbias = s.normal(8, bias.cpu.shape());
    for (const bool accumulate : {false, true}) {
      lstm_weight_gradient(s.cpu,
                           {.x = x.cpu,
                            .y = y.cpu,
                            .dgates = dgates.cpu,
                            .dw_input = dw_input.cpu,
                            .dw_hidden = dw_hidden.cpu,
                            .dbias = dbias.cpu,
                            .accumulate = accumulate});
      lstm_weight_gradient(s.gpu,
                           {.x = x.gpu,
                            .y = y.gpu,
                            .dgates = dgates.gpu,
                            .dw_input = dw_input.gpu,
                            .dw_hidden = dw_hidden.gpu,
                            .dbias = dbias.gpu,
                            .accumulate = accumulate});
      const double terms = std::sqrt(double(l.batch * l.length));
      check_same("dw_input", dw_input, {4e-5 * terms, 4e-5});
      check_same("dw_hidden", dw_hidden, {4e-5 * terms, 4e-5});
      check_same("dbias", dbias, {4e-5 * terms, 4e-5});
    }
  }
}

TEMPLATE_LIST_TEST_CASE("steps agree", "[gpu]", UpdateKernels) {
  if (!gpu()) {
    return skip("no GPU");
  }
  Streams s;
  for (const std::int64_t n : kSizes) {
    for (const bool extras : {false, true}) {
      const auto run = [&](Stream& stream) {
        UpdateArguments a;
        a.kernel = TestType::kernel;
        a.scalars = {.gradient_scale = 0.5f,
                     .rate = 0.1f,
                     .decay = 0.01f,
                     .gamma = 0.9f,
                     .beta2 = 0.99f,
                     .epsilon = 1e-6f,
                     .a = 0.7f,
                     .b = 2.5f,
                     .m_scale = 1.5f,
                     .g_scale = 0.4f,
                     .v_scale = 3.0f};
        a.w = normal_tensor(stream, 1, {n});
        a.g = normal_tensor(stream, 2, {n});
        a.w_new = extras ? stream.allocate({n}) : a.w;
        if (TestType::moments >= 1) {
          a.m = moment_tensor(stream, TestType::kernel, 1, {n});
        }
        if (TestType::moments >= 2) {
          a.v = moment_tensor(stream, TestType::kernel, 2, {n});
        }
        if (extras) {
          a.displacement = normal_tensor(stream, 5, {n});
          a.displacement_decay = 0.25f;
          a.predictions = {{0.3f, false, stream.allocate({n})}, {2.0f, true, stream.allocate({n})}};
        }
        troupe::update(stream, a);
        return a;
      };
      const UpdateArguments cpu = run(s.cpu);
      const UpdateArguments on_gpu = run(s.gpu);
      const Tolerance tolerance{3e-6, 3e-6};
      const auto compare = [&](const std::string& what, const Tensor& one, const Tensor& other) {
        if (one) {
          check_close(what, to_host(other), to_host(one), tolerance);
        }
      };
      compare("w_new", cpu.w_new, on_gpu.w_new);
      compare("m", cpu.m, on_gpu.m);
      compare("v", cpu.v, on_gpu.v);
      compare("displacement", cpu.displacement, on_gpu.displacement);
      for (std::size_t i = 0; i < cpu.predictions.size(); ++i) {
        compare("prediction", cpu.predictions[i].out, on_gpu.predictions[i].out);
      }
    }
  }
}

// The buffer of a tensor that was dropped while the GPU still used it must not be written by its
// next owner before.
TEST_CASE("a recycled GPU buffer waits for its earlier uses", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  const std::int64_t n = emulated() ? 1 << 14 : 1 << 22;
  const std::int64_t side = emulated() ? 16 : 1024;
  Stream slow{kGpu};
  Stream fast{kGpu};
  const Tensor a = normal_tensor(slow, 1, {side, side});
  const Tensor product = slow.allocate({side, side});
  const Tensor expected = slow.allocate({n});
  fill(slow, expected, 1);
  slow.synchronize();
  for (int round = 0; round < 20; ++round) {
    const Tensor out = slow.allocate({n});
    {
      const Tensor source = slow.allocate({n});
      fill(slow, source, 1);
      for (int i = 0; i < 10; ++i) {
        troupe::matmul(slow, a, a, product);
      }
      copy(slow, source, out);
    }
    const Tensor next = fast.allocate({n});  // most likely the buffer of `source`
    fill(fast, next, 2);
    const Tensor distance = slow.allocate({1}, DType::float64);
    squared_distance(slow, out, expected, distance);
    CHECK(to_host(distance)[0] == 0);
  }
}

TEST_CASE("a consumer on another stream waits for the tensor's event", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Stream producer{kGpu};
  Stream consumer{kGpu};
  const std::int64_t n = emulated() ? 1 << 14 : 1 << 20;
  const std::int64_t side = emulated() ? 16 : 1024;
  const Tensor a = normal_tensor(producer, 1, {side, side});
  const Tensor product = producer.allocate({side, side});
  const Tensor x = producer.allocate({n});
  const Tensor y = consumer.allocate({n});
  for (int round = 1; round <= 20; ++round) {
    consumer.synchronize();
    for (int i = 0; i < 10; ++i) {
      troupe::matmul(producer, a, a, product);
    }
    fill(producer, x, round);
    Tensor handed = x;
    handed.set_ready(producer.record());
    std::thread([&] { copy(consumer, handed, y); }).join();
    CHECK(to_host(y)[12345] == round);
  }
}

TEST_CASE("convolutions agree", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  if (cudnn_version().empty()) {
    return skip("no cuDNN");
  }
  Streams s;
  for (const Images& i : {Images{{1, 1, 0}, 1, 1, 1, 1, 1},
                          {{5, 1, 2}, 3, 28, 28, 1, 6},
                          {{5, 1, 0}, 3, 14, 14, 6, 16},
                          {{3, 1, 1}, 2, 9, 7, 3, 8},
                          {{3, 2, 1}, 2, 9, 8, 5, 7},
                          {{2, 2, 0}, 1, 7, 7, 4, 4},
                          {{3, 1, 1}, 2, 6, 6, 17, 13},
                          {{5, 1, 4}, 1, 6, 6, 6, 16},
                          {{4, 1, 1}, 1, 9, 11, 7, 3},
                          {{3, 3, 0}, 2, 11, 11, 1, 6},
                          {{1, 2, 0}, 2, 5, 5, 16, 3},
                          {{1, 1, 0}, 3, 7, 9, 65, 72},
                          {{1, 1, 0}, 2, 7, 6, 64, 75},
                          {{11, 1, 5}, 1, 12, 12, 1, 4},
                          {{3, 1, 1}, 16, 17, 19, 64, 64}}) {
    INFO(i.x() << " by " << i.w() << ", stride " << i.geometry.stride << ", padding "
               << i.geometry.padding);
    // The error of two float sums, or of cuDNN's transforms, of products of normal numbers.
    const auto tolerance = [](std::int64_t terms) {
      return Tolerance{1e-5 * std::sqrt(double(terms)), 2e-6};
    };
    const std::int64_t taps = i.geometry.kernel * i.geometry.kernel;
    const Twin x = s.normal(1, i.x());
    const Twin w = s.normal(2, i.w());
    const Twin bias = s.normal(3, {i.channels_out});
    for (const ActivationKind kind :
         {ActivationKind::none, ActivationKind::relu, ActivationKind::tanh, ActivationKind::selu}) {
      const Twin y = s.empty(i.y());
      convolution_forward(s.cpu,
                          {.geometry = i.geometry,
                           .x = x.cpu,
                           .w = w.cpu,
                           .bias = bias.cpu,
                           .activation = kind,
                           .y = y.cpu});
      convolution_forward(s.gpu,
                          {.geometry = i.geometry,
                           .x = x.gpu,
                           .w = w.gpu,
                           .bias = bias.gpu,
                           .activation = kind,
                           .y = y.gpu});
      check_same(concat("y, ", to_string(kind)), y, tolerance(taps * i.channels));
    }
    const Twin dy = s.normal(4, i.y());
    const Twin dx = s.normal(5, i.x());
    troupe::convolution_input_gradient(s.cpu, i.geometry, dy.cpu, w.cpu, dx.cpu);
    troupe::convolution_input_gradient(s.gpu, i.geometry, dy.gpu, w.gpu, dx.gpu);
    check_same("dx", dx, tolerance(taps * i.channels_out));
    const Twin dw = s.normal(6, i.w());
    for (const bool accumulate : {false, true}) {
      troupe::convolution_weight_gradient(s.cpu, i.geometry, x.cpu, dy.cpu, dw.cpu, accumulate);
      troupe::convolution_weight_gradient(s.gpu, i.geometry, x.gpu, dy.gpu, dw.gpu, accumulate);
      // cuDNN adds the terms of each sum one after the other: n additions lose sqrt(n) 2^-24 of the sum, of which four times are
      // allowed (one standard deviation each).
      const double terms = 2 * double(i.y().elements()) / double(i.channels_out);
      check_same(
          "dw", dw, {1e-5 * std::sqrt(terms), std::ldexp(4.0, -24) * std::sqrt(terms) + 2e-6});
    }
    // Only algorithms that repeat their bits are used.
    const Values first = to_host(dw.gpu);
    troupe::convolution_weight_gradient(s.gpu, i.geometry, x.gpu, dy.gpu, dw.gpu, false);
    const Values once = to_host(dw.gpu);
    troupe::convolution_weight_gradient(s.gpu, i.geometry, x.gpu, dy.gpu, dw.gpu, false);
    CHECK(to_host(dw.gpu) == once);
    CHECK(first != once);  // it had been accumulated
  }
}

TEST_CASE("a NaN passes through convolution and pooling", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Stream stream{kGpu};
  std::vector<float> image(8 * 8, 1.0f);
  image[9] = NAN;
  const Tensor x = from_host(stream, std::span<const float>(image), {1, 8, 8, 1});
  const Tensor pooled = stream.allocate({1, 4, 4, 1});
  const Tensor winner = stream.allocate({1, 4, 4, 1}, DType::int32);
  max_pool_forward(stream, {2, 2, 0}, x, pooled, winner);
  CHECK(std::isnan(to_host(pooled)[0]));
  CHECK(to_host(winner)[0] == 3);
  CHECK(to_host(pooled)[1] == 1);
  if (!cudnn_version().empty()) {
    const Tensor w = normal_tensor(stream, 1, {4, 3, 3, 1});
    const Tensor bias = normal_tensor(stream, 2, {4});
    const Tensor y = stream.allocate({1, 8, 8, 4});
    convolution_forward(stream,
                        {.geometry = {3, 1, 1},
                         .x = x,
                         .w = w,
                         .bias = bias,
                         .activation = ActivationKind::relu,
                         .y = y});
    CHECK(std::isnan(to_host(y)[0]));
    CHECK_FALSE(std::isnan(to_host(y).back()));
  }
}

TEST_CASE("max pooling agrees in every bit", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Streams s;
  for (const Images& i : {Images{{2, 2, 0}, 2, 6, 8, 3, 3},
                          {{2, 2, 0}, 2, 7, 9, 17, 17},
                          {{2, 2, 0}, 3, 28, 28, 6, 6},
                          {{3, 2, 1}, 2, 7, 6, 16, 16},
                          {{3, 1, 1}, 1, 5, 4, 33, 33},
                          {{2, 3, 0}, 1, 8, 8, 5, 5},
                          {{1, 1, 0}, 1, 3, 3, 1, 1},
                          {{5, 1, 4}, 1, 3, 2, 2, 2}}) {
    INFO(i.x() << ", window " << i.geometry.kernel << ", stride " << i.geometry.stride
               << ", padding " << i.geometry.padding);
    const Twin x = s.normal(1, i.x());
    const Twin y = s.empty(i.pooled());
    const Twin winner = s.empty(i.pooled(), DType::int32);
    max_pool_forward(s.cpu, i.geometry, x.cpu, y.cpu, winner.cpu);
    max_pool_forward(s.gpu, i.geometry, x.gpu, y.gpu, winner.gpu);
    check_same("y", y, {});
    check_same("winner", winner, {});
    const Twin dy = s.normal(2, i.pooled());
    const Twin dx = s.normal(3, i.x());
    troupe::max_pool_backward(s.cpu, i.geometry, dy.cpu, winner.cpu, dx.cpu);
    troupe::max_pool_backward(s.gpu, i.geometry, dy.gpu, winner.gpu, dx.gpu);
    check_same("dx", dx, {});
  }
}

TEST_CASE("muon's parts agree", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Streams s;
  for (const std::int64_t n : kSizes) {
    const Twin g = s.normal(1, {n});
    const Twin m = s.normal(2, {n});
    const UpdateScalars scalars{.gradient_scale = 0.5f, .gamma = 0.9f};
    nesterov_direction(s.cpu, scalars, g.cpu, m.cpu, g.cpu);
    nesterov_direction(s.gpu, scalars, g.gpu, m.gpu, g.gpu);
    check_same("direction", g, {});
    check_same("m", m, {});
    normalize(s.cpu, g.cpu, g.cpu);
    normalize(s.gpu, g.gpu, g.gpu);
    check_same("normalized", g, {0, 2e-7});  // the sums' orders differ
  }
  for (const auto& [rows, columns] :
       {std::pair{1, 1}, {1, 31}, {31, 1}, {17, 64}, {65, 33}, {128, 84}}) {
    INFO(rows << " x " << columns);
    const Twin x = s.normal(1, {rows, columns});
    orthogonalize(s.cpu, x.cpu, x.cpu);
    orthogonalize(s.gpu, x.gpu, x.gpu);
    check_same("orthogonalized", x, {1e-5, 0});  // twice orthogonalize_test's
  }
}

}  // namespace parity_test
