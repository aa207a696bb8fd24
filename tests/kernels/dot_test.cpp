#include "kernels/dot.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <cmath>

namespace dot_test {

using namespace troupe;
using namespace troupe::test;

TEST_CASE("dot agrees with a naive loop in double", "[kernels][dot]") {
  Stream stream(Device{});
  for (const std::int64_t n : {1, 2, 15, 16, 17, 33, 1001}) {
    const Tensor x = normal_tensor(stream, 1, {n});
    const Tensor y = normal_tensor(stream, 2, {n});
    double sum = 0;
    double sizes = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      const double product =
          static_cast<double>(x.span<float>()[i]) * static_cast<double>(y.span<float>()[i]);
      sum += product;
      sizes += std::abs(product);
    }
    // Products of two floats are exact in double; n additions round by 2^-53 each.
    CHECK(std::abs(dot(stream, x, y) - sum) <= 0x1p-53 * static_cast<double>(n) * sizes);
  }
  CHECK_THROWS_AS(dot(stream, stream.allocate({2}), stream.allocate({3})), ContractError);
}

}  // namespace dot_test
