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

TEST_CASE("activations far out take their limits", "[kernels]") {
  CHECK(Tanh{}.forward(100.0f) == 1.0f);
  CHECK(Tanh{}.forward(-100.0f) == -1.0f);
  CHECK(Gelu{}.forward(0.0f) == 0.0f);
  CHECK(Gelu{}.forward(30.0f) == 30.0f);
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
  for (int kind = 0; kind <= static_cast<int>(ActivationKind::selu); ++kind) {
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
