#include "kernels/orthogonalize.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <algorithm>
#include <cmath>

namespace orthogonalize_test {

using namespace troupe;
using namespace troupe::test;

namespace {

struct Size {
  std::int64_t rows;
  std::int64_t columns;
};

constexpr Size kSizes[] = {
    {1, 1}, {1, 31}, {31, 1}, {3, 5}, {17, 64}, {64, 17}, {33, 65}, {65, 33}, {10, 257}, {128, 84}};

/// X X^T of a (rows, columns) matrix, or X^T X where that is smaller.
Values smaller_gram(const Values& x, Size size) {
  const std::int64_t side = std::min(size.rows, size.columns);
  const bool tall = size.rows > size.columns;
  Values gram(static_cast<std::size_t>(side * side));
  test::matmul(x, x, gram, side, side, std::max(size.rows, size.columns), tall, !tall);
  return gram;
}

/// The eigenvalues of a symmetric matrix, by cyclic Jacobi rotations.
Values eigenvalues(Values a) {
  const auto n = static_cast<std::size_t>(std::lround(std::sqrt(double(a.size()))));
  for (int sweep = 0; sweep < 30; ++sweep) {
    for (std::size_t p = 0; p < n; ++p) {
      for (std::size_t q = p + 1; q < n; ++q) {
        if (a[p * n + q] == 0) {
          continue;
        }
        const double theta = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
        const double t = std::copysign(1 / (std::abs(theta) + std::hypot(theta, 1)), theta);
        const double c = 1 / std::hypot(t, 1);
        const double s = t * c;
        for (std::size_t k = 0; k < n; ++k) {
          const double kp = a[k * n + p];
          const double kq = a[k * n + q];
          a[k * n + p] = c * kp - s * kq;
          a[k * n + q] = s * kp + c * kq;
        }
        for (std::size_t k = 0; k < n; ++k) {
          const double pk = a[p * n + k];
          const double qk = a[q * n + k];
          a[p * n + k] = c * pk - s * qk;
          a[q * n + k] = s * pk + c * qk;
        }
      }
    }
  }
  Values diagonal(n);
  for (std::size_t i = 0; i < n; ++i) {
    diagonal[i] = a[i * n + i];
  }
  std::sort(diagonal.begin(), diagonal.end());
  return diagonal;
}

Values singular_values(const Values& x, Size size) {
  Values values = eigenvalues(smaller_gram(x, size));
  for (double& value : values) {
    value = std::sqrt(std::max(0.0, value));
  }
  return values;
}

}  // namespace

TEST_CASE("orthogonalize agrees with Newton-Schulz in double", "[kernels]") {
  Stream stream{Device{}};
  for (const Size size : kSizes) {
    INFO(size.rows << " x " << size.columns);
    const Tensor x = normal_tensor(stream, 1, {size.rows, size.columns});
    const Values before = to_host(x);
    const Tensor out = stream.allocate(x.shape());
    orthogonalize(stream, x, out);
    // Float rounding (6e-8) of entries below one, over fifteen products; measured 6e-7 at most. A
    // small singular value's own error grows with it.
    check_close("out", to_host(out), newton_schulz(before, size.rows, size.columns), {5e-6, 0});
    CHECK(to_host(x) == before);
    orthogonalize(stream, x, x);
    CHECK(to_host(x) == to_host(out));
  }
}

TEST_CASE("orthogonalize brings the singular values of random matrices near one", "[kernels]") {
  Stream stream{Device{}};
  for (const Size size : kSizes) {
    INFO(size.rows << " x " << size.columns);
    const Tensor x = normal_tensor(stream, 7, {size.rows, size.columns});
    orthogonalize(stream, x, x);
    const Values values = singular_values(to_host(x), size);
    CHECK(values.front() >= 0.68);
    CHECK(values.back() <= 1.136);
  }
}

// That what is large and what is small in x turn into the same: diag(1, 1/4, 1/16) keeps its axes.
TEST_CASE("orthogonalize keeps the singular vectors", "[kernels]") {
  Stream stream{Device{}};
  std::vector<float> values(3 * 5);
  values[0] = 1;
  values[5 + 1] = 0.25f;
  values[10 + 2] = -0.0625f;
  const Tensor x = from_host(stream, std::span<const float>(values), {3, 5});
  orthogonalize(stream, x, x);
  const Values out = to_host(x);
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (values[i] == 0) {
      CHECK(out[i] == 0);
    } else {
      CHECK(std::copysign(1.0, out[i]) == std::copysign(1.0, double(values[i])));
      CHECK(std::abs(out[i]) >= 0.68);
      CHECK(std::abs(out[i]) <= 1.136);
    }
  }
}

TEST_CASE("orthogonalize does not see the scale, bit for bit at powers of two", "[kernels]") {
  Stream stream{Device{}};
  const Tensor x = normal_tensor(stream, 1, {17, 33});
  const Tensor out = stream.allocate(x.shape());
  orthogonalize(stream, x, out);
  const Values expected = to_host(out);
  for (const float factor : {0.125f, 1024.0f}) {
    const Tensor scaled = normal_tensor(stream, 1, {17, 33});
    scale(stream, scaled, factor);
    orthogonalize(stream, scaled, scaled);
    CHECK(to_host(scaled) == expected);
  }
}

TEST_CASE("orthogonalize of a transpose is the transpose", "[kernels]") {
  Stream stream{Device{}};
  const std::vector<float> wide = normal_floats(1, 7 * 33);
  std::vector<float> tall(wide.size());
  for (std::size_t r = 0; r < 7; ++r) {
    for (std::size_t c = 0; c < 33; ++c) {
      tall[c * 7 + r] = wide[r * 33 + c];
    }
  }
  const Tensor x = from_host(stream, std::span<const float>(wide), {7, 33});
  const Tensor y = from_host(stream, std::span<const float>(tall), {33, 7});
  orthogonalize(stream, x, x);
  orthogonalize(stream, y, y);
  const Values of_x = to_host(x);
  Values transposed(of_x.size());
  for (std::size_t r = 0; r < 7; ++r) {
    for (std::size_t c = 0; c < 33; ++c) {
      transposed[c * 7 + r] = of_x[r * 33 + c];
    }
  }
  check_close("y", to_host(y), transposed, {5e-6, 0});
}

TEST_CASE("orthogonalize leaves zero, spreads a NaN and names a wrong shape", "[kernels]") {
  Stream stream{Device{}};
  const Tensor x = stream.allocate({3, 4});
  fill(stream, x, 0);
  orthogonalize(stream, x, x);
  CHECK(to_host(x) == Values(12));
  x.span<float>()[5] = NAN;
  orthogonalize(stream, x, x);
  for (const double value : to_host(x)) {
    CHECK(std::isnan(value));
  }
  const Tensor flat = stream.allocate({12});
  CHECK_THROWS_WITH(orthogonalize(stream, flat, flat),
                    says("[orthogonalize] x is (12), not (M, N) with both >= 1"));
  CHECK_THROWS_WITH(orthogonalize(stream, x, flat), says("out is (12), not (3, 4)"));
}

}  // namespace orthogonalize_test
