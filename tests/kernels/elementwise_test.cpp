#include "kernels/elementwise.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <cmath>

namespace elementwise_test {

using namespace troupe;
using namespace troupe::test;

TEST_CASE("add adds, and cuts off below zero where asked", "[kernels]") {
  Stream stream{Device{}};
  const auto n = GENERATE(0, 1, 31, 33, 1023);
  const auto kind = GENERATE(ActivationKind::none, ActivationKind::relu);
  const Tensor a = normal_tensor(stream, 1, {n});
  const Tensor b = normal_tensor(stream, 2, {n, 1});
  const Tensor y = stream.allocate({1, n});
  add(stream, a, b, kind, y);
  Values expected = to_host(a);
  const Values other = to_host(b);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i] = activation(kind, expected[i] + other[i]);
  }
  check_close("y", to_host(y), expected, {0, 6e-8});  // one rounding
  const Values apart = to_host(y);
  const auto into = GENERATE(true, false);
  add(stream, a, b, kind, into ? a : b);
  CHECK(to_host(into ? a : b) == apart);
}

TEST_CASE("add does not hide a NaN", "[kernels]") {
  Stream stream{Device{}};
  const std::vector<float> values{1, NAN, -1};
  const Tensor x = from_host(stream, std::span<const float>(values), {3});
  add(stream, x, x, ActivationKind::relu, x);
  const Values y = to_host(x);
  CHECK(y[0] == 2);
  CHECK(std::isnan(y[1]));
  CHECK(y[2] == 0);
}

TEST_CASE("add says what disagrees", "[kernels]") {
  Stream stream{Device{}};
  const Tensor a = stream.allocate({3});
  const Tensor b = stream.allocate({4});
  CHECK_THROWS_WITH(add(stream, a, b, ActivationKind::none, a), says("[add] a is (3), b (4), y"));
  CHECK_THROWS_WITH(add(stream, a, a, ActivationKind::gelu, a), says("expected none or relu"));
}

TEST_CASE("columns are copied to their place and no further", "[kernels]") {
  Stream stream{Device{}};
  const Tensor x = normal_tensor(stream, 1, {2, 3, 5});
  const Tensor y = normal_tensor(stream, 2, {6, 7});
  const Values from = to_host(x);
  Values expected = to_host(y);
  copy_columns(stream, x, 1, y, 4, 3);
  for (std::size_t r = 0; r < 6; ++r) {
    std::copy_n(
        from.begin() + std::ptrdiff_t(r * 5 + 1), 3, expected.begin() + std::ptrdiff_t(r * 7 + 4));
  }
  CHECK(to_host(y) == expected);
  CHECK_THROWS_WITH(copy_columns(stream, x, 3, y, 4, 3),
                    says("[copy_columns] 3 columns from 3 of x, which is (2, 3, 5), to 4 of y"));
}

}  // namespace elementwise_test
