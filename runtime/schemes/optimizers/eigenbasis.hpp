// Where soap and basis_rotation get their bases from: decompositions of small matrices, on the host, which
// Eigen makes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

/// A matrix (rows, columns) on the host, row-major.
struct HostMatrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<float> values{};

  float& at(std::int64_t row, std::int64_t column) {
    return values[static_cast<std::size_t>(row * columns + column)];
  }
};

/// The eigenvectors of a symmetric (n, n), one a column, the greatest eigenvalue first. The identity where `x`
/// is not finite.
HostMatrix eigenvectors(const HostMatrix& x);

/// x^T x, or x x^T.
HostMatrix gram(const HostMatrix& x, bool of_rows);

/// A better basis, and which column of the last one each of its columns comes from.
struct Refreshed {
  HostMatrix basis;                 // (n, n), orthogonal
  std::vector<std::int64_t> order;  // n
};

/// One step of orthogonal iteration: the columns of `basis` in the falling order of their Rayleigh quotients
/// q^T x q, times x, orthogonalised by Householder's QR. Shapes: x (n, n) symmetric, basis (n, n). The old
/// basis where x is not finite, or zero.
Refreshed refreshed(const HostMatrix& x, const HostMatrix& basis);

}  // namespace troupe
