#include "kernels/rotary.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <cmath>
#include <complex>

namespace rotary_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// By complex numbers: a pair is one, and turns by e^{i t theta^(-2j/D)}.
Values turned(const Rotary& o, const Shape& shape, Values x) {
  const std::int64_t half = o.head_size / 2;
  for (std::int64_t row = 0; row < shape[0] * shape[1]; ++row) {
    for (std::int64_t h = 0; h < o.heads; ++h) {
      for (std::int64_t j = 0; j < half; ++j) {
        double* const first = x.data() + row * shape[2] + h * o.head_size + j;
        const double angle = double(row % shape[1]) * std::pow(o.theta, -double(j) / double(half));
        const auto z =
            std::complex(first[0], first[half]) * std::polar(1.0, o.back ? -angle : angle);
        first[0] = z.real();
        first[half] = z.imag();
      }
    }
  }
  return x;
}

}  // namespace

TEST_CASE("rotary positions turn pairs by their position, and leave the rest", "[kernels]") {
  Stream stream{Device{}};
  for (const auto& [heads, size, rest] :
       {std::array{1, 2, 0}, {3, 10, 7}, {2, 32, 64}, {5, 66, 1}}) {
    for (const bool back : {false, true}) {
      const Rotary o{.heads = heads, .head_size = size, .theta = 500, .back = back};
      const Shape shape{2, 143, heads * size + rest};
      const Tensor x = normal_tensor(stream, 1, shape);
      const Tensor y = stream.allocate(shape);
      rotary(stream, o, x, y);
      // Two products and the cosine's own rounding.
      check_close("y", to_host(y), turned(o, shape, to_host(x)), {1e-6, 2e-7});
      rotary(stream, o, x, x);
      CHECK(to_host(x) == to_host(y));
    }
  }
}

TEST_CASE("products of turned rows depend on their distance alone", "[kernels]") {
  Stream stream{Device{}};
  const std::int64_t length = 2000;
  const Tensor x = stream.allocate({1, length, 16});
  const std::vector<float> row = normal_floats(1, 16);
  for (std::int64_t t = 0; t < length; ++t) {
    std::copy(row.begin(), row.end(), x.data<float>() + t * 16);
  }
  rotary(stream, {.heads = 1, .head_size = 16}, x, x);
  const auto product = [&](std::int64_t s, std::int64_t t) {
    double sum = 0;
    for (std::int64_t c = 0; c < 16; ++c) {
      sum += double(x.data<float>()[s * 16 + c]) * double(x.data<float>()[t * 16 + c]);
    }
    return sum;
  };
  CHECK(product(1900, 1993) == Approx(product(3, 96)).margin(1e-5));
  CHECK(product(3, 96) != Approx(product(3, 97)).margin(1e-3));
}

TEST_CASE("rotary positions refuse what does not fit", "[kernels]") {
  Stream stream{Device{}};
  const Tensor x = stream.allocate({2, 3, 8});
  CHECK_THROWS_WITH(rotary(stream, {.heads = 2, .head_size = 6}, x, x),
                    says("[rotary] x is (2, 3, 8), which has not 2 heads of 6 columns"));
  CHECK_THROWS_WITH(rotary(stream, {.heads = 2, .head_size = 3}, x, x), says("an even number"));
}

}  // namespace rotary_test
