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

TEST_CASE("copy_columns moves columns and nothing else", "[kernels]") {
  Stream stream{Device{}};
  const std::vector<float> from{1, 2, 3, 4, 5, 6};
  const Tensor x = from_host(stream, std::span<const float>(from), {2, 3});
  const Tensor y = stream.allocate({2, 4});
  fill(stream, y, 9);
  copy_columns(stream, {.x = x, .x_first = 1, .y = y, .y_first = 2, .width = 2});
  CHECK(to_host(y) == Values{9, 9, 2, 3, 9, 9, 5, 6});
  CHECK_THROWS_AS(copy_columns(stream, {.x = x, .x_first = 2, .y = y, .width = 2}), ContractError);
  CHECK_THROWS_AS(copy_columns(stream, {.x = x, .y = y, .y_first = 3, .width = 2}), ContractError);
}

TEST_CASE("add says what disagrees", "[kernels]") {
  Stream stream{Device{}};
  const Tensor a = stream.allocate({3});
  const Tensor b = stream.allocate({4});
  CHECK_THROWS_WITH(add(stream, a, b, ActivationKind::none, a), says("[add] a is (3), b (4), y"));
  CHECK_THROWS_WITH(add(stream, a, a, ActivationKind::gelu, a), says("right is none or relu"));
}

}  // namespace elementwise_test
