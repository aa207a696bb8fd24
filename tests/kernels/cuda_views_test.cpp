// What the CUDA kernels do differently by the place and number of their arguments: 16-byte accesses
// where every pointer allows them, a bias in the product's epilogue where it is aligned, four
// predictions a pass, 64 parts a launch. Against the CPU. Skipped where there is no GPU.
#include "kernels/loss.hpp"
#include "kernels/matmul.hpp"
#include "kernels/update.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"
#include "tests/support/skip.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace cuda_views_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// Normal numbers that begin `offset` elements after an aligned address.
Tensor normal_view(Stream& stream, std::uint64_t seed, std::int64_t offset, Shape shape) {
  return normal_tensor(stream, seed, {offset + shape.elements()}).view(offset, shape);
}

}  // namespace

TEST_CASE("element-wise kernels take views that begin anywhere", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Stream cpu{Device{}};
  Stream stream{kGpu};
  for (const std::int64_t offset : {0, 1, 2, 3, 4}) {
    for (const std::int64_t n : {1, 3, 4, 5, 1027}) {
      INFO("offset " << offset << ", n " << n);
      const auto run = [&](Stream& s) {
        const Tensor whole = normal_tensor(s, 1, {offset + n + 3});
        const Tensor x = whole.view(offset, {n});
        activation_forward(s, ActivationKind::relu, x, x);
        scale(s, x, 0.25f);
        fill(s, whole.view(0, {offset}), 7);
        return to_host(whole);  // the elements beside the view too: nothing else was written
      };
      CHECK(run(stream) == run(cpu));
    }
  }
}

// The functors are the same and no multiply-add is fused on either side, so that the steps agree in
// every bit.
TEMPLATE_LIST_TEST_CASE("a step with many predictions, on views that begin anywhere",
                        "[gpu]",
                        UpdateKernels) {
  if (!gpu()) {
    return skip("no GPU");
  }
  constexpr std::int64_t kElements = 1031;
  Stream cpu{Device{}};
  Stream stream{kGpu};
  for (const std::size_t predictions : {0, 4, 5, 8, 9}) {
    for (const std::int64_t offset : {0, 1}) {
      INFO(predictions << " predictions, offset " << offset);
      const auto run = [&](Stream& s) {
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
        a.w = normal_view(s, 1, 0, {kElements});
        a.g = normal_view(s, 2, offset, {kElements});
        a.w_new = a.w;
        if (TestType::moments >= 1) {
          a.m = moment_tensor(s, TestType::kernel, 1, {kElements});
        }
        if (TestType::moments >= 2) {
          a.v = moment_tensor(s, TestType::kernel, 2, {kElements});
        }
        a.displacement = normal_view(s, 5, 0, {kElements});
        a.displacement_decay = 0.25f;
        for (std::size_t i = 0; i < predictions; ++i) {
          a.predictions.push_back(
              {0.1f * static_cast<float>(i), i % 3 == 1, s.allocate({kElements})});
        }
        troupe::update(s, a);
        std::vector<Values> all{to_host(a.w_new), to_host(a.displacement)};
        for (const Tensor& moment : {a.m, a.v}) {
          all.push_back(moment ? to_host(moment) : Values{});
        }
        for (const Prediction& prediction : a.predictions) {
          all.push_back(to_host(prediction.out));
        }
        return all;
      };
      CHECK(run(stream) == run(cpu));
    }
  }
}

TEST_CASE("a product takes operands and a bias that begin anywhere", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Stream cpu{Device{}};
  Stream stream{kGpu};
  for (const std::int64_t offset : {0, 1, 2, 4}) {
    for (const ActivationKind kind :
         {ActivationKind::none, ActivationKind::relu, ActivationKind::tanh}) {
      for (const std::int64_t columns : {10, 31, 64}) {
        INFO("offset " << offset << ", " << to_string(kind) << ", " << columns << " columns");
        const auto run = [&](Stream& s) {
          const Tensor a = normal_view(s, 1, offset, {33, 65});
          const Tensor b = normal_view(s, 2, offset, {columns, 65});
          const Tensor c = normal_view(s, 3, offset, {33, columns});
          MatmulOptions options{.transpose_b = true, .activation = kind};
          options.bias = normal_view(s, 4, offset, {columns});
          troupe::matmul(s, a, b, c, options);
          // The same shapes again with another bias: the plan is found, the pointer is new.
          options.bias = normal_view(s, 5, offset, {columns});
          troupe::matmul(s, a, b, c, options);
          return to_host(c);
        };
        check_close("c", run(stream), run(cpu), {8e-6 * std::sqrt(65.0), 2e-6});
      }
    }
  }
}

// Otherwise a network whose weights are NaN would go on with a finite loss.
TEST_CASE("a NaN passes through a product with relu", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Stream stream{kGpu};
  std::vector<float> values(16 * 16, 1.0f);
  values[5] = std::numeric_limits<float>::quiet_NaN();
  const Tensor a = from_host(stream, std::span<const float>(values), {16, 16});
  const Tensor b = normal_tensor(stream, 1, {16, 16});
  const Tensor c = stream.allocate({16, 16});
  MatmulOptions options{.activation = ActivationKind::relu};
  for (const bool with_bias : {false, true}) {
    options.bias = with_bias ? normal_tensor(stream, 2, {16}) : Tensor();
    troupe::matmul(stream, a, b, c, options);
    CHECK(std::isnan(to_host(c)[0]));
  }
}

TEST_CASE("sums of many parts, and of rows that fill many blocks", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Stream cpu{Device{}};
  Stream stream{kGpu};
  std::vector<Part> parts;
  for (std::int64_t i = 0; i < 150; ++i) {
    parts.push_back({7 * i, i % 5 == 0 ? 0 : 1000 * i});
  }
  const std::int64_t count = static_cast<std::int64_t>(parts.size());
  const auto squares = [&](Stream& s) {
    const Tensor out = s.allocate({count}, DType::float64);
    sum_of_squares(s, normal_tensor(s, 1, {3'000'000}), parts, out);
    return to_host(out);
  };
  const Values got = squares(stream);
  check_close("sum_of_squares", got, squares(cpu), {0, 1e-12});
  CHECK(squares(stream) == got);  // the order of additions is fixed

  const auto columns = [&](Stream& s) {
    const Tensor out = s.allocate({3});
    column_sum(s, normal_view(s, 1, 1, {70'001, 3}), out, false);
    return to_host(out);
  };
  check_close("column_sum", columns(stream), columns(cpu), {2e-3, 2e-6});

  const auto loss = [&](Stream& s) {
    const Tensor result = s.allocate({2}, DType::float64);
    const Tensor x = normal_tensor(s, 1, {9001, 37});
    const Tensor labels = random_labels(s, 3, 9001, 37);
    troupe::softmax_cross_entropy(s, x, labels, x, result);  // in place
    Values all = to_host(result);
    const Values gradient = to_host(x);
    all.insert(all.end(), gradient.begin(), gradient.end());
    return all;
  };
  const Values got_loss = loss(stream);
  check_close("cross-entropy", got_loss, loss(cpu), {1e-9, 4e-6});
  CHECK(loss(stream) == got_loss);
}

TEST_CASE("a diverged row shows in the loss, and predicts nothing", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Stream stream{kGpu};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor label =
      from_host(stream, std::span<const std::int32_t>(std::vector<std::int32_t>{0}), {1});
  const Tensor result = stream.allocate({2}, DType::float64);
  for (const std::vector<float>& row : {std::vector<float>{1, nan, 0},
                                        std::vector<float>{nan, nan, nan},
                                        std::vector<float>{1, infinity, 0}}) {
    troupe::softmax_cross_entropy(
        stream, from_host(stream, std::span<const float>(row), {1, 3}), label, Tensor(), result);
    CHECK(std::isnan(to_host(result)[0]));
    CHECK(to_host(result)[1] == 0);
  }
}

}  // namespace cuda_views_test
