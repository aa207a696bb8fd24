// basis_rotation against loops in double of its authors' program (github.com/LOG-postech/basis-rotation,
// optim/basis_rotation.py), with Adam's epsilon where PyTorch has it. Decompositions are made here, by Jacobi's rotations
// and Householder's reflections.
#include "experiment.pb.h"
#include "messages/archive.hpp"
#include "messages/experiment.hpp"
#include "runtime/schemes/optimizers/optimizer_step.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/double_matrix.hpp"
#include "tests/support/skip.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

namespace basis_rotation_test {

using namespace troupe;
using test::Matrix;
using test::product;
using test::sum;
using test::transposed;
using test::zeros;

namespace {

constexpr double kRate = 0.1;
constexpr double kGamma = 0.9;
constexpr double kBeta2 = 0.95;
constexpr double kEpsilon =
    0.01;  // large: what float32 leaves of a diagonal matrix is not divided by itself
constexpr double kDecay = 0.1;
constexpr double kFloat32 = 4e-5;
constexpr int kUpdates = 7;

struct Options {
  std::string source = "first";
  bool bilateral = true;
  int every = 2;
  std::size_t side_max = 2048;
};

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

Matrix identity(std::size_t n) {
  Matrix one = zeros(n, n);
  for (std::size_t i = 0; i < n; ++i) {
    one.at(i, i) = 1;
  }
  return one;
}

Matrix columns(const Matrix& x, const std::vector<std::size_t>& order) {
  Matrix y = x;
  for (std::size_t i = 0; i < x.rows; ++i) {
    for (std::size_t j = 0; j < x.columns; ++j) {
      y.at(i, j) = x.at(i, order[j]);
    }
  }
  return y;
}

Matrix rows(const Matrix& x, const std::vector<std::size_t>& order) {
  return transposed(columns(transposed(x), order));
}

std::vector<std::size_t> falling(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return values[a] > values[b];
  });
  return order;
}

/// Eigenvectors of a symmetric matrix, the greatest eigenvalue first (Jacobi 1846).
Matrix eigenvectors(Matrix a) {
  const std::size_t n = a.rows;
  Matrix q = identity(n);
  for (int sweep = 0; sweep < 60; ++sweep) {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = i + 1; j < n; ++j) {
        const double angle = 0.5 * std::atan2(2 * a.at(i, j), a.at(i, i) - a.at(j, j));
        Matrix turn = identity(n);
        turn.at(i, i) = turn.at(j, j) = std::cos(angle);
        turn.at(j, i) = std::sin(angle);
        turn.at(i, j) = -std::sin(angle);
        a = product(transposed(turn), product(a, turn));
        q = product(q, turn);
      }
    }
  }
  std::vector<double> values;
  for (std::size_t i = 0; i < n; ++i) {
    values.push_back(a.at(i, i));
  }
  return columns(q, falling(values));
}

/// All of the Q of a QR (Householder 1958): (rows, rows).
Matrix orthogonalised(Matrix x) {
  Matrix q = identity(x.rows);
  for (std::size_t k = 0; k < std::min(x.rows, x.columns) && k + 1 < x.rows; ++k) {
    Matrix v = zeros(x.rows, 1);
    double norm = 0;
    for (std::size_t i = k; i < x.rows; ++i) {
      v.at(i, 0) = x.at(i, k);
      norm += v.at(i, 0) * v.at(i, 0);
    }
    v.at(k, 0) += v.at(k, 0) < 0 ? -std::sqrt(norm) : std::sqrt(norm);
    double squares = 0;
    for (const double value : v.values) {
      squares += value * value;
    }
    if (squares == 0) {
      continue;
    }
    const Matrix mirror = sum(1, identity(x.rows), -2 / squares, product(v, transposed(v)));
    x = product(mirror, x);
    q = product(q, mirror);
  }
  return q;
}

/// Left singular vectors, the greatest first, filled up.
Matrix left_singular(const Matrix& m) {
  return m.rows <= m.columns ? eigenvectors(product(m, transposed(m)))
                             : orthogonalised(product(m, eigenvectors(product(transposed(m), m))));
}

std::vector<double> squared_norms(const Matrix& x) {
  std::vector<double> all(x.columns);
  for (std::size_t i = 0; i < x.rows; ++i) {
    for (std::size_t j = 0; j < x.columns; ++j) {
      all[j] += x.at(i, j) * x.at(i, j);
    }
  }
  return all;
}

class Literal {
 public:
  Literal(Options options, Matrix start)
      : o_(std::move(options)),
        w(std::move(start)),
        m_(zeros(w.rows, w.columns)),
        v_(m_),
        squares_{zeros(w.rows, w.rows), zeros(w.columns, w.columns)} {
    const bool left = (o_.bilateral || w.rows < w.columns) && w.rows <= o_.side_max;
    const bool right = (o_.bilateral || w.rows >= w.columns) && w.columns <= o_.side_max;
    rotated_ = {left, right};
  }

  void step(const Matrix& g) {
    ++t_;
    m_ = sum(kGamma, m_, 1 - kGamma, g);
    squares_[0] = sum(kBeta2, squares_[0], 1 - kBeta2, product(g, transposed(g)));
    squares_[1] = sum(kBeta2, squares_[1], 1 - kBeta2, product(transposed(g), g));
    if (t_ == 1 || t_ % o_.every == 0) {
      o_.source == "first" ? alternate() : iterate();
    }
    const Matrix turned = there(g);
    for (std::size_t i = 0; i < v_.values.size(); ++i) {
      v_.values[i] = kBeta2 * v_.values[i] + (1 - kBeta2) * turned.values[i] * turned.values[i];
    }
    Matrix direction = there(m_);
    for (std::size_t i = 0; i < v_.values.size(); ++i) {
      direction.values[i] /= (1 - std::pow(kGamma, t_)) *
                             (std::sqrt(v_.values[i] / (1 - std::pow(kBeta2, t_))) + kEpsilon);
    }
    w = sum(1 - kRate * kDecay, w, -kRate, back(direction));
  }

 private:
  /// Of source first: each side from the other one as it was.
  void alternate() {
    const std::array<Matrix, 2> seen{m_, transposed(m_)};
    const std::array<std::optional<Matrix>, 2> old = basis_;
    for (std::size_t side = 0; side < 2; ++side) {
      if (!rotated_[side]) {
        continue;
      }
      if (t_ == 1) {
        basis_[side] = left_singular(seen[side]);
        continue;
      }
      const Matrix other = old[1 - side] ? *old[1 - side] : identity(seen[side].columns);
      const Matrix by = product(seen[side], other);
      const auto order = falling(squared_norms(by));
      basis_[side] = orthogonalised(columns(by, order));
      v_ = side == 0 ? columns(v_, order) : rows(v_, order);
    }
  }

  /// Of the others: orthogonal iteration of each side by itself.
  void iterate() {
    for (std::size_t side = 0; side < 2; ++side) {
      if (!rotated_[side]) {
        continue;
      }
      const Matrix seen = side == 0 ? m_ : transposed(m_);
      const Matrix x = o_.source == "second" ? squares_[side] : product(seen, transposed(seen));
      if (t_ == 1) {
        basis_[side] = eigenvectors(x);
        continue;
      }
      const Matrix& q = *basis_[side];
      const Matrix quotients = product(transposed(q), product(x, q));
      std::vector<double> diagonal;
      for (std::size_t i = 0; i < q.rows; ++i) {
        diagonal.push_back(quotients.at(i, i));
      }
      const auto order = falling(diagonal);
      basis_[side] = orthogonalised(product(x, columns(q, order)));
      v_ = side == 0 ? rows(v_, order) : columns(v_, order);
    }
  }

  Matrix there(Matrix x) const {
    x = basis_[0] ? product(transposed(*basis_[0]), x) : x;
    return basis_[1] ? product(x, *basis_[1]) : x;
  }

  Matrix back(Matrix x) const {
    x = basis_[0] ? product(*basis_[0], x) : x;
    return basis_[1] ? product(x, transposed(*basis_[1])) : x;
  }

  Options o_;

 public:
  Matrix w;

 private:
  Matrix m_;
  Matrix v_;
  std::array<Matrix, 2> squares_;
  std::array<bool, 2> rotated_{};
  std::array<std::optional<Matrix>, 2> basis_{};
  int t_ = 0;
};

ChunkOptimizer optimizer(const Options& o) {
  proto::Experiment e;
  for (const std::string& assignment :
       {std::string("optimizer.rule=basis_rotation"),
        std::string("optimizer.momentum=0.9"),
        std::string("optimizer.beta2=0.95"),
        std::string("optimizer.epsilon=0.01"),
        std::string("optimizer.weight_decay=0.1"),
        "optimizer.rotation.source=" + o.source,
        concat("optimizer.rotation.geometry=", o.bilateral ? "bilateral" : "unilateral"),
        concat("optimizer.rotation.every=", o.every),
        concat("optimizer.rotation.side_max=", o.side_max)}) {
    REQUIRE(set_value(e, assignment));
  }
  REQUIRE(resolve(e));
  return {e, Rate(e.optimizer(), 0), 0, 0};
}

/// One matrix that is a slice.
class Kept {
 public:
  Kept(const Options& o, const Matrix& start, Device device = {})
      : stream_(device),
        shape_{static_cast<std::int64_t>(start.rows), static_cast<std::int64_t>(start.columns)},
        step_(optimizer(o),
              {.pieces = {{.slice = 0, .offset = 0, .shape = shape_, .matrix = true}},
               .slice_sizes = {shape_.elements()}}),
        w_(tensor(start)) {}

  void step(const Matrix& g) {
    Weights base;
    base.push_back({.values = w_});
    w_ = step_
             .apply(stream_,
                    std::move(base),
                    {tensor(g)},
                    {.rate = kRate, .next_rate = kRate, .gradient_scale = 1, .reaches = {}})
             .next[0]
             .values;
  }

  Matrix w() const { return {at(shape_[0]), at(shape_[1]), to_host(w_)}; }

  OptimizerStep& optimizer_step() { return step_; }

 private:
  Tensor tensor(const Matrix& x) {
    const std::vector<float> all(x.values.begin(), x.values.end());
    return from_host(stream_, std::span<const float>(all), {shape_.elements()});
  }

  Stream stream_;
  Shape shape_;
  OptimizerStep step_;
  Tensor w_;
};

Matrix gradient(int t, std::size_t rows, std::size_t columns) {
  Matrix g = zeros(rows, columns);
  for (std::size_t i = 0; i < g.values.size(); ++i) {
    const auto x = static_cast<double>(i);
    g.values[i] =
        std::sin(0.7 * x + 1.3 * t) + 0.2 * std::cos(0.31 * x * t) + 0.3 * std::sin(x * x);
  }
  return g;
}

Matrix start(std::size_t rows, std::size_t columns) {
  Matrix w = zeros(rows, columns);
  for (std::size_t i = 0; i < w.values.size(); ++i) {
    w.values[i] = 0.1 * static_cast<double>(i) - 0.4;
  }
  return w;
}

double apart(const Matrix& a, const Matrix& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    most = std::max(most, std::abs(a.values[i] - b.values[i]));
  }
  return most;
}

Matrix by_loop(const Options& o, std::size_t rows, std::size_t columns) {
  Literal loop(o, start(rows, columns));
  for (int t = 1; t <= kUpdates; ++t) {
    loop.step(gradient(t, rows, columns));
  }
  return loop.w;
}

Matrix by_optimizer(const Options& o, std::size_t rows, std::size_t columns, Device device = {}) {
  Kept kept(o, start(rows, columns), device);
  for (int t = 1; t <= kUpdates; ++t) {
    kept.step(gradient(t, rows, columns));
  }
  return kept.w();
}

}  // namespace

TEST_CASE("basis_rotation is its authors' program, by each source", "[schemes]") {
  using Sides = std::pair<std::size_t, std::size_t>;
  for (const Sides& sides : {Sides{4, 3},
                             Sides{3, 4},
                             Sides{5, 5},
                             Sides{7, 4},
                             Sides{4, 7},
                             Sides{1, 4},
                             Sides{4, 1}}) {
    for (const std::string source : {"first", "first_gram", "second"}) {
      for (const bool bilateral : {true, false}) {
        for (const int every : {1, 2, 3}) {
          const Options o{.source = source, .bilateral = bilateral, .every = every};
          // What first_gram and the first basis fill up the longer side with is anything: a step is not told apart.
          const std::size_t more =
              std::max(sides.first, sides.second) - std::min(sides.first, sides.second);
          if (more > 1 && bilateral && (source != "first" || every > 2)) {
            continue;
          }
          INFO(source << " " << sides.first << " x " << sides.second << " " << bilateral << " "
                      << every);
          const Matrix expected = by_loop(o, sides.first, sides.second);
          CHECK(apart(by_optimizer(o, sides.first, sides.second), expected) < kFloat32);
          if (test::gpu()) {  // its bases are made on the host, all else is not
            CHECK(apart(by_optimizer(o, sides.first, sides.second, test::kGpu), expected) <
                  kFloat32);
          }
        }
      }
    }
  }
}

TEST_CASE("the sources of a rotated basis are told apart", "[schemes]") {
  for (const bool bilateral : {true, false}) {
    for (const auto& [a, b] : {std::pair("first", "first_gram"),
                               std::pair("first", "second"),
                               std::pair("first_gram", "second")}) {
      INFO(a << " " << b << " " << bilateral);
      CHECK(apart(by_optimizer({.source = a, .bilateral = bilateral, .every = 1}, 4, 3),
                  by_loop({.source = b, .bilateral = bilateral, .every = 1}, 4, 3)) > 0.01);
    }
  }
  CHECK(apart(by_optimizer({.every = 3}, 4, 3), by_loop({.every = 2}, 4, 3)) > 0.01);
}

TEST_CASE("a side that is too long is not rotated, and the other one looks at the whole matrix",
          "[schemes]") {
  for (const std::string source : {"first", "first_gram", "second"}) {
    for (const int every : {1, 2}) {
      INFO(source << every);
      const Options o{.source = source, .bilateral = true, .every = every, .side_max = 3};
      CHECK(apart(by_optimizer(o, 3, 8), by_loop(o, 3, 8)) < kFloat32);
      CHECK(apart(by_optimizer(o, 8, 3), by_loop(o, 8, 3)) < kFloat32);
      CHECK(apart(by_optimizer(o, 8, 8), by_loop(o, 8, 8)) < kFloat32);  // none is
    }
  }
}

TEST_CASE("with a first gradient of zero, or none that is a number, a basis stays one",
          "[schemes]") {
  Kept kept({.every = 1}, start(4, 3));
  kept.step(zeros(4, 3));
  CHECK(apart(kept.w(), sum(1 - kRate * kDecay, start(4, 3), 0, start(4, 3))) < 1e-6);
  for (int t = 2; t <= kUpdates; ++t) {
    kept.step(gradient(t, 4, 3));
  }
  const Matrix w = kept.w();
  CHECK(std::all_of(
      w.values.begin(), w.values.end(), [](double x) { return std::isfinite(x) && x < 2; }));
  Matrix bad = gradient(1, 4, 3);
  bad.at(1, 2) = NAN;
  kept.step(bad);
  CHECK(std::isnan(kept.w().at(1, 2)));
}

TEST_CASE("a rotated optimizer's basis is in its checkpoint", "[schemes]") {
  for (const std::string source : {"first", "first_gram", "second"}) {
    for (const bool bilateral : {true, false}) {
      const Options o{.source = source, .bilateral = bilateral, .every = 2};
      Kept whole(o, start(4, 3));
      for (int t = 1; t <= 3; ++t) {
        whole.step(gradient(t, 4, 3));
      }
      Archive out;
      whole.optimizer_step().archive(out);
      Kept resumed(o, whole.w());
      Archive in(out.take());
      resumed.optimizer_step().archive(in);
      for (int t = 4; t <= kUpdates; ++t) {
        resumed.step(gradient(t, 4, 3));
      }
      INFO(source << bilateral);
      CHECK(apart(resumed.w(), by_loop(o, 4, 3)) < kFloat32);
    }
  }
}

}  // namespace basis_rotation_test
