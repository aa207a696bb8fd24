#include "kernels/convolution.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <cmath>

namespace pooling_test {

using namespace troupe;
using namespace troupe::test;

namespace {

std::vector<Images> sizes() {
  std::vector<Images> all;
  for (const std::int64_t channels : {1, 2, 3, 6, 8, 15, 16, 17, 31, 32, 33, 64}) {
    all.push_back({{2, 2, 0}, 2, 6, 8, channels, channels});
    all.push_back({{2, 2, 0}, 2, 7, 9, channels, channels});
    all.push_back({{2, 2, 0}, 1, 2, 2, channels, channels});
    all.push_back({{3, 2, 1}, 2, 7, 6, channels, channels});
    all.push_back({{3, 1, 1}, 1, 5, 4, channels, channels});
    all.push_back({{3, 3, 0}, 1, 10, 9, channels, channels});
    all.push_back({{2, 3, 0}, 1, 8, 8, channels, channels});
    all.push_back({{1, 1, 0}, 1, 3, 3, channels, channels});
  }
  all.push_back({{2, 2, 0}, 3, 28, 28, 6, 6});
  all.push_back({{2, 2, 0}, 3, 10, 10, 16, 16});
  return all;
}

std::string describe(const Images& s) {
  return concat("x ",
                s.x(),
                " kernel ",
                s.geometry.kernel,
                " stride ",
                s.geometry.stride,
                " padding ",
                s.geometry.padding);
}

}  // namespace

TEST_CASE("max_pool_forward finds the maximum and its place", "[kernels]") {
  Stream stream{Device{}};
  for (const Images& s : sizes()) {
    INFO(describe(s));
    const Tensor x = normal_tensor(stream, 1, s.x());
    const Tensor y = stream.allocate(s.pooled());
    const Tensor winner = stream.allocate(s.pooled(), DType::int32);
    max_pool_forward(stream, s.geometry, x, y, winner);
    const Pooled expected = max_pool(s, to_host(x));
    CHECK(to_host(y) == expected.y);
    CHECK(to_host(winner) == expected.winner);
  }
}

TEST_CASE("max_pool_forward takes the first of equals", "[kernels]") {
  Stream stream{Device{}};
  for (const Images& s : sizes()) {
    INFO(describe(s));
    const Tensor x = stream.allocate(s.x());
    fill(stream, x, -3.5);
    const Tensor y = stream.allocate(s.pooled());
    const Tensor winner = stream.allocate(s.pooled(), DType::int32);
    max_pool_forward(stream, s.geometry, x, y, winner);
    CHECK(to_host(winner) == max_pool(s, to_host(x)).winner);
  }
}

TEST_CASE("max_pool_forward does not hide a NaN", "[kernels]") {
  Stream stream{Device{}};
  for (std::size_t place = 0; place < 4; ++place) {
    std::vector<float> x(4, 1.0f);
    x[place] = NAN;
    const Tensor y = stream.allocate({1, 1, 1, 1});
    const Tensor winner = stream.allocate({1, 1, 1, 1}, DType::int32);
    max_pool_forward(
        stream, {2, 2, 0}, from_host(stream, std::span<const float>(x), {1, 2, 2, 1}), y, winner);
    CHECK(std::isnan(to_host(y)[0]));
    CHECK(to_host(winner)[0] == double(place));
  }
}

TEST_CASE("max_pool_backward gives each gradient to its winner", "[kernels]") {
  Stream stream{Device{}};
  for (const Images& s : sizes()) {
    INFO(describe(s));
    const Tensor x = normal_tensor(stream, 1, s.x());
    const Tensor y = stream.allocate(s.pooled());
    const Tensor winner = stream.allocate(s.pooled(), DType::int32);
    max_pool_forward(stream, s.geometry, x, y, winner);
    const Tensor dy = normal_tensor(stream, 2, s.pooled());
    const Tensor dx = normal_tensor(stream, 3, s.x());
    troupe::max_pool_backward(stream, s.geometry, dy, winner, dx);
    // Up to 9 float additions where windows overlap.
    check_close(
        "dx", to_host(dx), test::max_pool_backward(s, to_host(dy), to_host(winner)), {2e-6, 0});
  }
}

TEST_CASE("average pooling counts the padding as zeros", "[kernels]") {
  Stream stream{Device{}};
  for (const Images& s : sizes()) {
    INFO(describe(s));
    const Tensor x = normal_tensor(stream, 1, s.x());
    const Tensor y = normal_tensor(stream, 2, s.pooled());
    average_pool_forward(stream, s.geometry, x, y);
    // The mean of up to 9 normal numbers: 9 roundings of sums below 16.
    check_close("y", to_host(y), average_pool(s, to_host(x)), {1e-6, 0});
    const Tensor dy = normal_tensor(stream, 3, s.pooled());
    const Tensor dx = normal_tensor(stream, 4, s.x());
    troupe::average_pool_backward(stream, s.geometry, dy, dx);
    check_close("dx", to_host(dx), test::average_pool_backward(s, to_host(dy)), {1e-6, 0});
  }
}

TEST_CASE("average pooling of whole images is their mean, and shares the gradient", "[kernels]") {
  Stream stream{Device{}};
  const auto channels = GENERATE(1, 7, 8, 33);
  const Images s{{7, 7, 0}, 3, 7, 7, channels, channels};
  const Tensor x = normal_tensor(stream, 1, s.x());
  const Tensor y = stream.allocate(s.pooled());
  average_pool_forward(stream, s.geometry, x, y);
  check_close("y", to_host(y), average_pool(s, to_host(x)), {2e-6, 0});
  const Tensor dx = stream.allocate(s.x());
  troupe::average_pool_backward(stream, s.geometry, y, dx);
  check_close("dx", to_host(dx), test::average_pool_backward(s, to_host(y)), {0, 2e-7});
}

TEST_CASE("average pooling does not hide a NaN", "[kernels]") {
  Stream stream{Device{}};
  const std::vector<float> x{1, 2, NAN, 4};
  const Tensor y = stream.allocate({1, 1, 1, 1});
  average_pool_forward(
      stream, {2, 2, 0}, from_host(stream, std::span<const float>(x), {1, 2, 2, 1}), y);
  CHECK(std::isnan(to_host(y)[0]));
}

TEST_CASE("pooling says what disagrees", "[kernels]") {
  Stream stream{Device{}};
  const ConvolutionGeometry geometry{.kernel = 2, .stride = 2, .padding = 0};
  const Tensor x = stream.allocate({2, 8, 8, 3});
  const Tensor y = stream.allocate({2, 4, 4, 3});
  CHECK_THROWS_WITH(max_pool_forward(stream, geometry, x, y, y),
                    says("[max_pool_forward] winner is float32, not int32"));
  CHECK_THROWS_WITH(max_pool_forward(stream, geometry, x, x, y),
                    says("[max_pool_forward] y is (2, 8, 8, 3), not (2, 4, 4, 3)"));
  CHECK_THROWS_WITH(average_pool_forward(stream, geometry, x, x),
                    says("[average_pool_forward] y is (2, 8, 8, 3), not (2, 4, 4, 3)"));
}

}  // namespace pooling_test
