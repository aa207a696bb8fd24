#include "runtime/schemes/optimizers/eigenbasis.hpp"

#include <Eigen/Eigenvalues>
#include <Eigen/QR>

#include <algorithm>
#include <numeric>

namespace troupe {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using View = Eigen::Map<const Matrix>;

View view(const HostMatrix& x) {
  return {x.values.data(), x.rows, x.columns};
}

HostMatrix host(const Matrix& x) {
  return {x.rows(), x.cols(), {x.data(), x.data() + x.size()}};
}

/// Of what is squared: in float32 the small singular values would be lost beside the greatest.
using Exact = Eigen::MatrixXd;

bool usable(const View& x) {
  return x.allFinite() && x.size() > 0 && x.cwiseAbs().maxCoeff() > 0;
}

/// In units of its largest element, whose square may be beyond float32.
Exact exact(const View& x) {
  return x.cast<double>() / static_cast<double>(x.cwiseAbs().maxCoeff());
}

/// All of the Q of a QR, square.
Exact orthogonalised(const Exact& x) {
  return Eigen::HouseholderQR<Exact>(x).householderQ();
}

HostMatrix rounded(const Exact& x) {
  return host(x.cast<float>());
}

std::vector<std::int64_t> falling(const Eigen::VectorXd& x) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(x.size()));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::ranges::stable_sort(order, [&x](std::int64_t a, std::int64_t b) { return x[a] > x[b]; });
  return order;
}

template <class M>
M columns_in_order(const M& x, const std::vector<std::int64_t>& order) {
  M sorted(x.rows(), x.cols());
  for (std::size_t i = 0; i < order.size(); ++i) {
    sorted.col(static_cast<Eigen::Index>(i)) = x.col(order[i]);
  }
  return sorted;
}

}  // namespace

HostMatrix eigenvectors(const HostMatrix& x) {
  if (view(x).allFinite()) {
    const Eigen::SelfAdjointEigenSolver<Matrix> solver(view(x));
    if (solver.info() == Eigen::Success) {
      return host(solver.eigenvectors().rowwise().reverse());  // Eigen's rise
    }
  }
  return host(Matrix::Identity(x.rows, x.rows));
}

HostMatrix gram(const HostMatrix& x, bool of_rows) {
  const View m = view(x);
  return of_rows ? host(m * m.transpose()) : host(m.transpose() * m);
}

HostMatrix transposed(const HostMatrix& x) {
  return host(view(x).transpose());
}

HostMatrix left_singular_vectors(const HostMatrix& x) {
  if (!usable(view(x))) {
    return host(Matrix::Identity(x.rows, x.rows));
  }
  const Exact m = exact(view(x));
  const bool wide = x.rows <= x.columns;
  const Exact gram = wide ? Exact(m * m.transpose()) : Exact(m.transpose() * m);
  const Eigen::SelfAdjointEigenSolver<Exact> solver(gram);
  if (solver.info() != Eigen::Success) {
    return host(Matrix::Identity(x.rows, x.rows));
  }
  const Exact vectors = solver.eigenvectors().rowwise().reverse();  // Eigen's rise
  return rounded(wide ? vectors : orthogonalised(m * vectors));
}

Refreshed refreshed(const HostMatrix& x, const HostMatrix& basis) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(basis.columns));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const View m = view(x);
  const View q = view(basis);
  const float largest = m.size() > 0 ? m.cwiseAbs().maxCoeff() : 0;
  if (!m.allFinite() || largest == 0) {
    return {basis, order};
  }
  const Matrix product =
      (m / largest) * q;  // gradients' squares may be too small to be squared again
  const Eigen::VectorXf quotients = q.cwiseProduct(product).colwise().sum();
  if (!quotients.allFinite()) {
    return {basis, order};
  }
  order = falling(quotients.cast<double>());
  const Eigen::HouseholderQR<Matrix> qr(columns_in_order(product, order));
  return {host(qr.householderQ()), std::move(order)};
}

Refreshed alternated(const HostMatrix& x, const HostMatrix& right) {
  if (!usable(view(x))) {
    return {};
  }
  const Exact m = exact(view(x));
  const Exact product = right.values.empty() ? m : Exact(m * view(right).cast<double>());
  std::vector<std::int64_t> order = falling(product.colwise().squaredNorm());
  return {rounded(orthogonalised(columns_in_order(product, order))), std::move(order)};
}

}  // namespace troupe
