#include "kernels/activation.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <cmath>
#include <limits>

namespace activation_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::int64_t kSizes[] = {0, 1, 15, 31, 33, 1023, 4099};

}  // namespace

TEMPLATE_LIST_TEST_CASE("an activation agrees with its formula in double at every size",
                        "[kernels]",
                        Activations) {
  Stream stream{Device{}};
  for (const std::int64_t n : kSizes) {
    std::vector<float> x = normal_floats(1, n);
    Values expected;
    for (float& value : x) {
      value *= 4;
      expected.push_back(activation(TestType::kind, double(value)));
    }
    const Tensor in = from_host(stream, std::span<const float>(x), {n});
    const Tensor out = stream.allocate({n});
    activation_forward(stream, TestType::kind, in, out);
    // exp and tanh are good to 2 units in the last place, 1.2e-7 each.
    check_close(std::string(TestType::name), to_host(out), expected, {1e-6, 5e-7});
    activation_forward(stream, TestType::kind, in, in);
    CHECK(to_host(in) == to_host(out));
  }
}

// Central differences need no second implementation of f', so this covers every functor in the
// list, present and future. h = 1e-2 balances the O(h^2) error of the formula against float
// rounding in f; both stay below 2e-3.
TEMPLATE_LIST_TEST_CASE("an activation's backward agrees with finite differences",
                        "[kernels]",
                        Activations) {
  Stream stream{Device{}};
  const std::vector<float> x{-6.0f,
                             -3.0f,
                             -1.0f,
                             -0.1f,
                             -0.02f,
                             0.02f,
                             0.1f,
                             1.0f,
                             3.0f,
                             6.0f,
                             2.0f,
                             -2.0f,
                             0.5f,
                             -0.5f,
                             0.3f,
                             -0.3f,
                             0.7f,
                             1.3f};
  const std::vector<float> dy = normal_floats(2, static_cast<std::int64_t>(x.size()));
  const Shape shape{static_cast<std::int64_t>(x.size())};
  const Tensor in = from_host(stream, std::span<const float>(x), shape);
  const Tensor out = stream.allocate(shape);
  activation_forward(stream, TestType::kind, in, out);
  const Tensor gradient = from_host(stream, std::span<const float>(dy), shape);
  const Tensor& saved = derivative_from_output(TestType::kind) ? out : in;
  activation_backward(stream, TestType::kind, saved, gradient, gradient);
  const Values dx = to_host(gradient);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float h = 1e-2f;
    const double slope =
        (double(TestType{}.forward(x[i] + h)) - double(TestType{}.forward(x[i] - h))) /
        (2 * double(h));
    INFO(TestType::name << " at x = " << x[i]);
    CHECK(dx[i] == Approx(double(dy[i]) * slope).margin(2e-3 * std::abs(double(dy[i])) + 1e-6));
  }
}

TEMPLATE_LIST_TEST_CASE("an activation's value does not depend on its place in the tensor",
                        "[kernels]",
                        Activations) {
  Stream stream{Device{}};
  const std::int64_t n = 77;
  const Tensor x = normal_tensor(stream, 3, {n});
  const Tensor y = stream.allocate({n});
  activation_forward(stream, TestType::kind, x, y);
  for (std::int64_t i = 0; i < n; ++i) {
    const Tensor one = stream.allocate({1});
    activation_forward(stream, TestType::kind, x.view(i, {1}), one);
    CHECK(to_host(one)[0] == to_host(y)[static_cast<std::size_t>(i)]);
  }
}

TEMPLATE_LIST_TEST_CASE("an activation hands a NaN on", "[kernels]", Activations) {
  Stream stream{Device{}};
  const std::vector<float> x(33, std::numeric_limits<float>::quiet_NaN());
  const Tensor y = from_host(stream, std::span<const float>(x), {33});
  activation_forward(stream, TestType::kind, y, y);
  for (const double value : to_host(y)) {
    CHECK(std::isnan(value));
  }
}

// What erf says far below 0, where half of its digits are gone in 1 + erf.
TEST_CASE("the normal distribution function keeps its digits far below 0", "[kernels]") {
  for (float x = -6; x < 6; x += 0.0137f) {
    const double exact = 0.5 * std::erfc(-double(x) / std::sqrt(2.0));
    INFO(x);
    // z^2 = x^2 / 2, of which five roundings become a relative error; the polynomial's own is the rest.
    const double relative = 5 * 0x1p-24 * double(x) * double(x) / 2 + 1e-6;
    CHECK(double(normal_share_float(x)) == Approx(exact).epsilon(relative).margin(0));
    CHECK(std::abs(double(normal_share_float(x)) - exact) < 3e-7);
  }
}

TEMPLATE_LIST_TEST_CASE("a gate and its gradients are those of f(a) b", "[kernels]", Activations) {
  Stream stream{Device{}};
  for (const std::int64_t width : {1, 15, 16, 33, 130}) {
    const std::int64_t rows = 7;
    const Tensor x = normal_tensor(stream, 1, {rows, 2 * width});
    const Tensor dy = normal_tensor(stream, 2, {rows, width});
    const Tensor y = stream.allocate({rows, width});
    const Tensor dx = stream.allocate({rows, 2 * width});
    gate_forward(stream, TestType::kind, x, y);
    gate_backward(stream, TestType::kind, x, dy, dx);
    const Values of_x = to_host(x);
    const Values of_dy = to_host(dy);
    Values expected;
    Values gradient(of_x.size());
    for (std::size_t i = 0; i < of_dy.size(); ++i) {
      const std::size_t at = i + i / std::size_t(width) * std::size_t(width);
      const double a = of_x[at];
      const double b = of_x[at + std::size_t(width)];
      const double h = 1e-6;
      const double slope =
          (activation(TestType::kind, a + h) - activation(TestType::kind, a - h)) / (2 * h);
      expected.push_back(activation(TestType::kind, a) * b);
      gradient[at] = of_dy[i] * b * slope;
      gradient[at + std::size_t(width)] = of_dy[i] * activation(TestType::kind, a);
    }
    check_close("y", to_host(y), expected, {1e-6, 1e-6});
    check_close("dx", to_host(dx), gradient, {3e-6, 1e-6});
  }
  CHECK_THROWS_WITH(
      gate_forward(stream, TestType::kind, stream.allocate({2, 5}), stream.allocate({2, 2})),
      says("[gate_forward] x is (2, 5), not (R, 2H)"));
}

TEST_CASE("activations far out take their limits", "[kernels]") {
  CHECK(Tanh{}.forward(100.0f) == 1.0f);
  CHECK(Tanh{}.forward(-100.0f) == -1.0f);
  CHECK(Gelu{}.forward(0.0f) == 0.0f);
  CHECK(Gelu{}.forward(30.0f) == 30.0f);
  CHECK(GeluErf{}.forward(30.0f) == 30.0f);
  CHECK(std::abs(GeluErf{}.forward(-30.0f)) < 1e-35f);
  CHECK(Silu{}.forward(100.0f) == 100.0f);
  CHECK(std::abs(Silu{}.forward(-100.0f)) < 1e-35f);
  CHECK(Selu{}.forward(-1000.0f) == Approx(-1.7580993408));
  CHECK(Relu{}.backward(0.0f, 1.0f) == 0.0f);
  CHECK(exp_float(0.0f) == 1.0f);
  CHECK(exp_float(-200.0f) < 2e-38f);
}

TEST_CASE("every activation kind has a functor and a name", "[kernels]") {
  CHECK(std::string(to_string(ActivationKind::selu)) == "selu");
  CHECK(derivative_from_output(ActivationKind::tanh));
  CHECK_FALSE(derivative_from_output(ActivationKind::gelu));
  CHECK_THROWS_AS(to_string(static_cast<ActivationKind>(99)), ContractError);
  for (int kind = 0; kind <= static_cast<int>(ActivationKind::silu); ++kind) {
    const auto each = static_cast<ActivationKind>(kind);
    CHECK(activation_named(to_string(each)) == each);
  }
  CHECK_THROWS_WITH(activation_named("bent"), says("no activation is called bent"));
}

TEST_CASE("activations refuse shapes that differ", "[kernels]") {
  Stream stream{Device{}};
  const Tensor x = stream.allocate({2, 3});
  const Tensor y = stream.allocate({3, 2});
  CHECK_THROWS_WITH(activation_forward(stream, ActivationKind::relu, x, y),
                    says("[activation_forward] y is (3, 2), not (2, 3)"));
  CHECK_THROWS_WITH(activation_forward(stream, ActivationKind::relu, Tensor(), y),
                    says("[activation_forward] x is empty"));
}

}  // namespace activation_test
