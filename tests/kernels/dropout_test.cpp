#include "kernels/dropout.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <cmath>

namespace dropout_test {

using namespace troupe;
using namespace troupe::test;

TEST_CASE("dropout keeps what the random numbers say", "[kernels]") {
  Stream stream{Device{}};
  const RandomStream random(11, Purpose::test, 3);
  const auto n = GENERATE(0, 1, 31, 33, 1023);
  const auto rate = GENERATE(0.0f, 0.1f, 0.5f, 0.99999994f);
  const std::uint64_t first = GENERATE(0u, 1'000'003u);
  const Tensor x = normal_tensor(stream, 1, {n});
  const Tensor y = stream.allocate({n});
  dropout(stream, random, first, rate, x, y);
  Values expected = to_host(x);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double number = static_cast<double>(random.bits(first + i) >> 32);
    expected[i] = number >= double(rate) * 0x1p32 ? expected[i] / (1 - double(rate)) : 0.0;
  }
  // Two roundings: of 1 / (1 - rate) and of the product.
  check_close("y", to_host(y), expected, {0, 1.3e-7});
}

TEST_CASE("dropout of rate 0 changes nothing", "[kernels]") {
  Stream stream{Device{}};
  const Tensor x = normal_tensor(stream, 1, {7, 11});
  const Tensor y = stream.allocate({77});
  dropout(stream, RandomStream(1, Purpose::test), 5, 0.0f, x, y);
  CHECK(to_host(y) == to_host(x));
}

TEST_CASE("dropout of a part is the part of the dropout, in place too", "[kernels]") {
  Stream stream{Device{}};
  const RandomStream random(2, Purpose::test);
  const Tensor x = normal_tensor(stream, 1, {200});
  const Tensor whole = stream.allocate({200});
  dropout(stream, random, 100, 0.3f, x, whole);
  const Tensor part = x.view(57, {99});
  dropout(stream, random, 157, 0.3f, part, part);
  CHECK(to_host(part) == to_host(whole.view(57, {99})));
}

TEST_CASE("dropout drops its share and keeps the mean", "[kernels]") {
  Stream stream{Device{}};
  const std::int64_t n = 100'000;
  const Tensor x = stream.allocate({n});
  fill(stream, x, 1);
  const auto rate = GENERATE(0.1f, 0.25f, 0.9f);
  dropout(stream, RandomStream(3, Purpose::test), 0, rate, x, x);
  double dropped = 0;
  for (const double value : to_host(x)) {
    dropped += value == 0 ? 1 : 0;
  }
  // Five deviations of a binomial count.
  const double p = double(rate);
  CHECK(std::abs(dropped - n * p) < 5 * std::sqrt(n * p * (1 - p)));
}

TEST_CASE("dropout refuses a rate that drops all", "[kernels]") {
  Stream stream{Device{}};
  const Tensor x = stream.allocate({3});
  CHECK_THROWS_WITH(dropout(stream, RandomStream(1, Purpose::test), 0, 1.0f, x, x),
                    says("[dropout] rate 1 is not in [0, 1)"));
}

}  // namespace dropout_test
