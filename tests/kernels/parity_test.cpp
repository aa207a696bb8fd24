// Every operation on CUDA against the CPU, on odd shapes. Skipped where there is no GPU.
#include "kernels/device.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"
#include "tests/support/skip.hpp"

#include <cmath>
#include <thread>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr Device kGpu{DeviceKind::cuda, 0};

bool gpu() {
  return static_cast<bool>(check_available(kGpu));
}

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
  for (const std::int64_t classes : {1, 2, 10, 33, 1100}) {
    for (const std::int64_t rows : {1, 7, 128}) {
      INFO(rows << " x " << classes);
      const Twin x = s.normal(1, {rows, classes});
      const Twin target = s.normal(2, {rows, classes});
      const Twin labels{random_labels(s.cpu, 3, rows, classes),
                        random_labels(s.gpu, 3, rows, classes)};
      const Twin gradient = s.empty({rows, classes});
      const Twin result = s.empty({2}, DType::float64);
      troupe::softmax_cross_entropy(s.cpu, x.cpu, labels.cpu, gradient.cpu, result.cpu);
      troupe::softmax_cross_entropy(s.gpu, x.gpu, labels.gpu, gradient.gpu, result.gpu);
      check_same("cross-entropy", result, {1e-5, 2e-6});
      check_same("dlogits", gradient, {1e-6 / double(rows), 4e-6});
      troupe::softmax_cross_entropy(s.gpu, x.gpu, labels.gpu, Tensor(), result.gpu);
      check_same("cross-entropy without gradient", result, {1e-5, 2e-6});
      troupe::squared_error(s.cpu, x.cpu, target.cpu, gradient.cpu, result.cpu);
      troupe::squared_error(s.gpu, x.gpu, target.gpu, gradient.gpu, result.gpu);
      check_same("squared error", result, {1e-12, 1e-6});
      check_same("dy", gradient, {1e-7, 1e-6});
    }
  }
}

TEMPLATE_LIST_TEST_CASE("steps agree", "[gpu]", UpdateRules) {
  if (!gpu()) {
    return skip("no GPU");
  }
  Streams s;
  for (const std::int64_t n : kSizes) {
    for (const bool extras : {false, true}) {
      const auto run = [&](Stream& stream) {
        UpdateArguments a;
        a.rule = TestType::rule;
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
          a.m = normal_tensor(stream, 3, {n});
        }
        if (TestType::moments >= 2) {
          std::vector<float> v = normal_floats(4, n);
          for (float& value : v) {
            value = 0.1f + value * value;
          }
          a.v = from_host(stream, std::span<const float>(v), {n});
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
  const std::int64_t n = 1 << 22;
  Stream slow{kGpu};
  Stream fast{kGpu};
  const Tensor a = normal_tensor(slow, 1, {1024, 1024});
  const Tensor product = slow.allocate({1024, 1024});
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
  const Tensor a = normal_tensor(producer, 1, {1024, 1024});
  const Tensor product = producer.allocate({1024, 1024});
  const Tensor x = producer.allocate({1 << 20});
  const Tensor y = consumer.allocate({1 << 20});
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

TEST_CASE("what has no CUDA kernel yet says so", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Stream stream{kGpu};
  const Tensor x = stream.allocate({1, 4, 4, 1});
  const Tensor y = stream.allocate({1, 2, 2, 1});
  const Tensor winner = stream.allocate({1, 2, 2, 1}, DType::int32);
  CHECK_THROWS_WITH(max_pool_forward(stream, {2, 2, 0}, x, y, winner), says("no CUDA kernel yet"));
}
