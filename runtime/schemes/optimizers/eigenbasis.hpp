// Where soap and basis_rotation get their bases from: decompositions of small matrices, on the host, which
// Eigen makes.
#pragma once

#include <cstddef>
#include <cstdint>
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

/// (columns, rows).
HostMatrix transposed(const HostMatrix& x);

/// The left singular vectors of `x`, one a column, the greatest singular value first: (rows, rows). What they leave of the
/// space is filled up by Householder's QR. The identity where `x` is not finite, or zero.
HostMatrix left_singular_vectors(const HostMatrix& x);

/// A better basis, and which column of the last one each of its columns comes from.
struct Refreshed {
  HostMatrix basis;                 // (n, n), orthogonal
  std::vector<std::int64_t> order;  // n
};

/// One step of orthogonal iteration: the columns of `basis` in the falling order of their Rayleigh quotients
/// q^T x q, times x, orthogonalised by Householder's QR. Shapes: x (n, n) symmetric, basis (n, n). The old
/// basis where x is not finite, or zero.
Refreshed refreshed(const HostMatrix& x, const HostMatrix& basis);

/// One step of alternation towards the left singular vectors of `x` (rows, columns), from a basis (columns, columns) of the
/// right ones: the columns of `right` in the falling order of the norms |x q|, multiplied by x and orthogonalised by
/// Householder's QR, which fills up the (rows, rows). `order` is that of `right`'s columns. Without `right` it is the
/// identity, so that the columns of x itself are orthogonalised. No basis where x is not finite, or zero.
Refreshed alternated(const HostMatrix& x, const HostMatrix& right);

}  // namespace troupe
