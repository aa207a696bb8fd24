// Matrices in double, by plain loops: what literal trajectories of schemes are computed with.
#pragma once

#include <cstddef>
#include <vector>

namespace troupe::test {

/// (rows, columns), row-major.
struct Matrix {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::vector<double> values{};

  double& at(std::size_t row, std::size_t column) { return values[row * columns + column]; }

  double at(std::size_t row, std::size_t column) const { return values[row * columns + column]; }
};

inline Matrix zeros(std::size_t rows, std::size_t columns) {
  return {rows, columns, std::vector<double>(rows * columns)};
}

inline Matrix transposed(const Matrix& x) {
  Matrix y = zeros(x.columns, x.rows);
  for (std::size_t i = 0; i < x.rows; ++i) {
    for (std::size_t j = 0; j < x.columns; ++j) {
      y.at(j, i) = x.at(i, j);
    }
  }
  return y;
}

inline Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c = zeros(a.rows, b.columns);
  for (std::size_t i = 0; i < a.rows; ++i) {
    for (std::size_t k = 0; k < a.columns; ++k) {
      for (std::size_t j = 0; j < b.columns; ++j) {
        c.at(i, j) += a.at(i, k) * b.at(k, j);
      }
    }
  }
  return c;
}

/// a x + b y.
inline Matrix sum(double a, const Matrix& x, double b, const Matrix& y) {
  Matrix z = x;
  for (std::size_t i = 0; i < z.values.size(); ++i) {
    z.values[i] = a * x.values[i] + b * y.values[i];
  }
  return z;
}

}  // namespace troupe::test
