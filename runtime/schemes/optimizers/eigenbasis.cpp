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
  std::stable_sort(order.begin(), order.end(), [&quotients](std::int64_t a, std::int64_t b) {
    return quotients[a] > quotients[b];
  });
  Matrix sorted(product.rows(), product.cols());
  for (std::size_t i = 0; i < order.size(); ++i) {
    sorted.col(static_cast<Eigen::Index>(i)) = product.col(order[i]);
  }
  const Eigen::HouseholderQR<Matrix> qr(sorted);
  return {host(qr.householderQ()), std::move(order)};
}

}  // namespace troupe
