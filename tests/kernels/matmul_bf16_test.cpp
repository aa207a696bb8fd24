// Products of bfloat16 on a CPU, in a program of its own: it is skipped where the CPU has none.
#include "kernels/matmul.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"
#include "tests/support/skip.hpp"

#include <cmath>

namespace matmul_bf16_test {

using namespace troupe;
using namespace troupe::test;

namespace {

struct Size {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t inner;
};

}  // namespace

TEST_CASE("in bf16 matmul is the product of the rounded operands, added up in float32",
          "[kernels]") {
  if (!check_precision(Device{}, Precision::bf16)) {
    return skip("no bfloat16 in this CPU");
  }
  Stream stream{Device{}, Precision::bf16};
  const auto rounded = [](const Tensor& x) {
    Values values = to_host(x);
    for (double& value : values) {
      value = static_cast<double>(to_float(to_bfloat16(static_cast<float>(value))));
    }
    return values;
  };
  const auto transpose_a = GENERATE(false, true);
  const auto transpose_b = GENERATE(false, true);
  for (const Size& s : {Size{1, 1, 1},
                        {1, 31, 33},
                        {33, 1, 31},
                        {31, 33, 1},
                        {37, 64, 65},
                        {128, 10, 84},
                        {300, 512, 31},
                        {127, 257, 129}}) {
    INFO(s.rows << " x " << s.columns << " x " << s.inner << " transposed " << transpose_a
                << transpose_b);
    const Tensor a =
        normal_tensor(stream, 1, transpose_a ? Shape{s.inner, s.rows} : Shape{s.rows, s.inner});
    const Tensor b = normal_tensor(
        stream, 2, transpose_b ? Shape{s.columns, s.inner} : Shape{s.inner, s.columns});
    const Tensor bias = normal_tensor(stream, 3, {s.columns});
    const Tensor c = stream.allocate({s.rows, s.columns});
    Values expected(static_cast<std::size_t>(c.elements()));
    test::matmul(
        rounded(a), rounded(b), expected, s.rows, s.columns, s.inner, transpose_a, transpose_b);
    const Values shift = to_host(bias);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] += shift[i % shift.size()];
    }
    troupe::matmul(
        stream, a, b, c, {.transpose_a = transpose_a, .transpose_b = transpose_b, .bias = bias});
    // Products of bfloat16 are exact in float32, so that what remains is the sum's error, as in matmul_test.cpp.
    check_close("c", to_host(c), expected, {4e-6 * std::sqrt(double(s.inner)), 1e-6});
  }
}

}  // namespace matmul_bf16_test
