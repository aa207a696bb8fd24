#include "kernels/matmul.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <cmath>
#include <limits>
#include <tuple>

namespace matmul_test {

using namespace troupe;
using namespace troupe::test;

namespace {

struct Size {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t inner;
};

// The last ones have the row lengths for which a kernel of our own may take over from oneDNN.
constexpr Size kSizes[] = {{1, 1, 1},
                           {1, 31, 33},
                           {33, 1, 31},
                           {31, 33, 1},
                           {7, 10, 13},
                           {37, 64, 65},
                           {64, 97, 5},
                           {128, 10, 84},
                           {33, 120, 127},
                           {128, 84, 120},
                           {17, 512, 300},
                           {300, 512, 31},
                           {16, 1024, 16},
                           {512, 65, 31}};

// A float sum of K products of normal numbers errs by about sqrt(K) eps; 4e-6 sqrt(K) is far above
// and a wrong index far beyond.
Tolerance tolerance(std::int64_t inner) {
  return {4e-6 * std::sqrt(double(inner)), 1e-6};
}

}  // namespace

TEST_CASE("matmul agrees with the naive product for every transposition and epilogue",
          "[kernels]") {
  Stream stream{Device{}};
  const auto transpose_a = GENERATE(false, true);
  const auto transpose_b = GENERATE(false, true);
  const auto accumulate = GENERATE(false, true);
  for (const Size& s : kSizes) {
    INFO(s.rows << " x " << s.columns << " x " << s.inner << " transposed " << transpose_a
                << transpose_b);
    const Tensor a =
        normal_tensor(stream, 1, transpose_a ? Shape{s.inner, s.rows} : Shape{s.rows, s.inner});
    const Tensor b = normal_tensor(
        stream, 2, transpose_b ? Shape{s.columns, s.inner} : Shape{s.inner, s.columns});
    const Tensor c = normal_tensor(stream, 3, {s.rows, s.columns});
    Values expected = accumulate ? to_host(c) : Values(static_cast<std::size_t>(c.elements()));
    test::matmul(
        to_host(a), to_host(b), expected, s.rows, s.columns, s.inner, transpose_a, transpose_b);
    troupe::matmul(
        stream,
        a,
        b,
        c,
        {.transpose_a = transpose_a, .transpose_b = transpose_b, .accumulate = accumulate});
    check_close("c", to_host(c), expected, tolerance(s.inner));
  }
}

TEST_CASE("matmul's epilogue adds the bias to each row, then applies the activation", "[kernels]") {
  Stream stream{Device{}};
  const auto kind = GENERATE(
      ActivationKind::none, ActivationKind::relu, ActivationKind::tanh, ActivationKind::selu);
  const auto with_bias = GENERATE(false, true);
  for (const Size& s : kSizes) {
    const Tensor a = normal_tensor(stream, 1, {s.rows, s.inner});
    const Tensor b = normal_tensor(stream, 2, {s.columns, s.inner});
    const Tensor bias = normal_tensor(stream, 3, {s.columns});
    const Tensor c = stream.allocate({s.rows, s.columns});
    Values expected(static_cast<std::size_t>(c.elements()));
    test::matmul(to_host(a), to_host(b), expected, s.rows, s.columns, s.inner, false, true);
    const Values shift = to_host(bias);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] = activation(kind, expected[i] + (with_bias ? shift[i % shift.size()] : 0.0));
    }
    MatmulOptions options{.transpose_b = true, .activation = kind};
    if (with_bias) {
      options.bias = bias;
    }
    troupe::matmul(stream, a, b, c, options);
    Tolerance allowed = tolerance(s.inner);
    allowed.absolute *= 2;  // selu's slope reaches 1.76
    check_close("c", to_host(c), expected, allowed);
  }
}

TEST_CASE("matmul gives the same bits every time, from any stream and alignment", "[kernels]") {
  const std::int64_t rows = 33;
  const std::int64_t columns = 100;
  const std::int64_t inner = 129;
  const auto run = [&](Stream& stream, std::int64_t offset) {
    const std::vector<float> a_values = normal_floats(1, rows * inner);
    const Tensor room = stream.allocate({rows * inner + offset});
    const Tensor a = room.view(offset, {rows, inner});
    copy(stream, from_host(stream, std::span<const float>(a_values), a.shape()), a);
    const Tensor b = normal_tensor(stream, 2, {columns, inner});
    const Tensor bias = normal_tensor(stream, 3, {columns});
    const Tensor c = stream.allocate({rows, columns});
    troupe::matmul(
        stream, a, b, c, {.transpose_b = true, .bias = bias, .activation = ActivationKind::relu});
    return to_host(c);
  };
  Stream first{Device{}};
  Stream second{Device{}};
  const Values expected = run(first, 0);
  for (const std::int64_t offset : {0, 1, 3, 16}) {
    CHECK(run(first, offset) == expected);
    CHECK(run(second, offset) == expected);
  }
}

TEST_CASE(
    "products by a repeated factor agree with the naive product, and a row has the same bits "
    "beside any others",
    "[kernels]") {
  Stream stream{Device{}};
  const auto transpose = GENERATE(false, true);
  const auto accumulate = GENERATE(false, true);
  for (const Size& s : kSizes) {
    INFO(s.rows << " x " << s.columns << " x " << s.inner << " transposed " << transpose);
    const Tensor a = normal_tensor(stream, 1, {s.rows, s.inner});
    const Tensor b =
        normal_tensor(stream, 2, transpose ? Shape{s.columns, s.inner} : Shape{s.inner, s.columns});
    const Tensor c = normal_tensor(stream, 3, {s.rows, s.columns});
    const Tensor last = stream.allocate({1, s.columns});
    copy(stream, c.view((s.rows - 1) * s.columns, last.shape()), last);
    Values expected = accumulate ? to_host(c) : Values(static_cast<std::size_t>(c.elements()));
    test::matmul(to_host(a), to_host(b), expected, s.rows, s.columns, s.inner, false, transpose);
    const RepeatedFactor factor(stream, b, transpose);
    factor.multiply(stream, a, c, accumulate);
    check_close("c", to_host(c), expected, tolerance(s.inner));
    if (factor.is_copied()) {  // else it is matmul's product
      factor.multiply(stream, a.view((s.rows - 1) * s.inner, {1, s.inner}), last, accumulate);
      CHECK(to_host(last) == to_host(c.view((s.rows - 1) * s.columns, last.shape())));
    }
  }
  const RepeatedFactor factor(stream, normal_tensor(stream, 1, {3, 4}), transpose);
  const Tensor five = stream.allocate({2, 5});
  CHECK_THROWS_WITH(factor.multiply(stream, five, five, false), Catch::Contains("[matmul]"));
}

TEST_CASE("matmul does not hide a NaN", "[kernels]") {
  Stream stream{Device{}};
  const auto kind = GENERATE(
      ActivationKind::none, ActivationKind::relu, ActivationKind::tanh, ActivationKind::selu);
  const Tensor a = normal_tensor(stream, 1, {33, 17});
  fill(stream, a, std::numeric_limits<double>::quiet_NaN());
  const Tensor b = normal_tensor(stream, 2, {17, 31});
  const Tensor c = stream.allocate({33, 31});
  troupe::matmul(stream, a, b, c, {.activation = kind});
  for (const double value : to_host(c)) {
    CHECK(std::isnan(value));
  }
}

TEST_CASE("matmul says what disagrees", "[kernels]") {
  Stream stream{Device{}};
  const Tensor a = stream.allocate({64, 128});
  const Tensor b = stream.allocate({64, 10});
  const Tensor c = stream.allocate({64, 10});
  CHECK_THROWS_WITH(troupe::matmul(stream, a, b, c),
                    says("[matmul] inner dimensions differ: a is (64, 128), b is (64, 10)"));
  CHECK_THROWS_WITH(troupe::matmul(stream, a, b, c, {.transpose_a = true}),
                    says("[matmul] c is (64, 10), not (128, 10): a is (64, 128) transposed"));
  const Tensor right = stream.allocate({128, 10});
  CHECK_THROWS_WITH(
      troupe::matmul(stream, a, b, right, {.transpose_a = true, .bias = stream.allocate({9})}),
      says("[matmul] bias is (9), not (10)"));
  CHECK_THROWS_AS(
      troupe::matmul(
          stream, a, b, right, {.transpose_a = true, .activation = ActivationKind::gelu}),
      ContractError);
  CHECK_THROWS_AS(
      troupe::matmul(stream,
                     a,
                     b,
                     right,
                     {.transpose_a = true, .accumulate = true, .bias = stream.allocate({10})}),
      ContractError);
  CHECK_THROWS_AS(
      troupe::matmul(
          stream, stream.allocate({0, 3}), stream.allocate({3, 2}), stream.allocate({0, 2})),
      ContractError);
  const Tensor square = stream.allocate({4, 4});
  CHECK_THROWS_WITH(troupe::matmul(stream, square, stream.allocate({4, 4}), square),
                    says("c is one of its operands"));
}

}  // namespace matmul_test
