// Optimizers that move each parameter by itself: lars, lamb, soap and basis_rotation.
#include "experiment.pb.h"
#include "messages/archive.hpp"
#include "messages/experiment.hpp"
#include "runtime/schemes/optimizers/eigenbasis.hpp"
#include "runtime/schemes/optimizers/optimizer_step.hpp"
#include "tests/support/catch.hpp"

#include <cmath>
#include <numeric>

namespace optimizers_test {

using namespace troupe;

namespace {

using Values = std::vector<double>;

constexpr double kRate = 0.1;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

ChunkOptimizer optimizer(const std::vector<std::string>& assignments) {
  proto::Experiment e;
  for (const std::string& assignment : assignments) {
    REQUIRE(set_value(e, assignment));
  }
  REQUIRE(resolve(e));
  return {e, Rate(e.optimizer(), 0), 0, 0};
}

std::vector<std::string> rule(const std::string& name, const std::vector<std::string>& more = {}) {
  std::vector<std::string> all{"optimizer.rule=" + name,
                               "optimizer.momentum=0.9",
                               "optimizer.beta2=0.95",
                               "optimizer.epsilon=0.01",
                               "optimizer.weight_decay=0.1"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// One parameter in a slice that is padded to 16 elements.
class OneParameter {
 public:
  OneParameter(const std::vector<std::string>& assignments, Shape shape, const Values& start)
      : shape_(shape),
        step_(optimizer(assignments),
              {.pieces =
                   {{.slice = 0, .offset = 0, .shape = shape, .matrix = shape.dimensions() == 2}},
               .slice_sizes = {kSize}}),
        w_(padded(start)) {}

  void step(const Values& gradient, double scale = 1) {
    Weights base;
    base.push_back({.values = w_});
    auto made =
        step_.apply(stream_,
                    std::move(base),
                    {padded(gradient)},
                    {.rate = kRate, .next_rate = kRate, .gradient_scale = scale, .reaches = {}});
    w_ = made.next[0].values;
  }

  Values w() const {
    Values all = to_host(w_);
    for (std::size_t i = at(shape_.elements()); i < all.size(); ++i) {
      CHECK(all[i] == 0);
    }
    all.resize(at(shape_.elements()));
    return all;
  }

  OptimizerStep& optimizer_step() { return step_; }

 private:
  static constexpr std::int64_t kSize = 16;

  Tensor padded(const Values& values) {
    std::vector<float> all(values.begin(), values.end());
    all.resize(kSize);
    return from_host(stream_, std::span<const float>(all), {kSize});
  }

  Stream stream_{Device{}};
  Shape shape_;
  OptimizerStep step_;
  Tensor w_;
};

/// The weights and gradients that the vectors below were computed for.
Values first_weights(std::int64_t n) {
  Values w;
  for (std::int64_t i = 0; i < n; ++i) {
    w.push_back(0.1 * static_cast<double>(i) - 0.4);
  }
  return w;
}

Values gradient(int t, std::int64_t n) {
  Values g;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto x = static_cast<double>(i);
    g.push_back(std::sin(0.7 * x + 1.3 * t) + 0.2 * std::cos(0.31 * x * t));
  }
  return g;
}

/// After seven steps.
Values moved(const std::vector<std::string>& assignments, Shape shape) {
  OneParameter p(assignments, shape, first_weights(shape.elements()));
  for (int t = 1; t <= 7; ++t) {
    p.step(gradient(t, shape.elements()));
  }
  return p.w();
}

void check_close(const Values& found, const Values& expected, double tolerance) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    INFO(i);
    CHECK(found[i] == Approx(expected[i]).margin(tolerance));
  }
}

/// The largest difference.
double farthest(const Values& a, const Values& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(a[i] - b[i]));
  }
  return most;
}

double norm(const Values& x) {
  return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
}

/// (rows, inner) times (inner, columns).
Values product(const Values& a, const Values& b, std::int64_t inner) {
  const std::int64_t rows = static_cast<std::int64_t>(a.size()) / inner;
  const std::int64_t columns = static_cast<std::int64_t>(b.size()) / inner;
  Values c(at(rows * columns));
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t k = 0; k < inner; ++k) {
      for (std::int64_t j = 0; j < columns; ++j) {
        c[at(i * columns + j)] += a[at(i * inner + k)] * b[at(k * columns + j)];
      }
    }
  }
  return c;
}

/// A rotation of the first two of n axes by 40 degrees, of the last two by 70.
Values rotation(std::int64_t n) {
  Values identity(at(n * n));
  for (std::int64_t i = 0; i < n; ++i) {
    identity[at(i * n + i)] = 1;
  }
  Values all = identity;
  for (const auto& [axis, angle] : {std::pair(std::int64_t{0}, 0.698), std::pair(n - 2, 1.222)}) {
    Values one = identity;
    one[at(axis * n + axis)] = one[at((axis + 1) * n + axis + 1)] = std::cos(angle);
    one[at(axis * n + axis + 1)] = -std::sin(angle);
    one[at((axis + 1) * n + axis)] = std::sin(angle);
    all = product(all, one, n);
  }
  return all;
}

}  // namespace

// float64 vectors of the equations of the authors' code (github.com/LOG-postech/basis-rotation), but with Adam's epsilon
// where PyTorch has it, with betas 0.9 and 0.95, rate 0.1, weight decay 0.1 and a refresh each other step. Epsilon is
// large: in its own eigenbasis the first gradient is a diagonal matrix, and what float32 leaves beside the diagonal
// would be divided by itself. float32 is up to 2.3e-5 off, by the order in which a machine's vectors add; a basis that is
// refreshed later, or is of the other moment, is off by more than 4e-3.
TEST_CASE("basis_rotation is what its authors' code computes", "[schemes]") {
  constexpr double kFloat32 = 4e-5;
  const auto with = [](const std::string& geometry) {
    return rule("basis_rotation",
                {"optimizer.rotation.every=2", "optimizer.rotation.geometry=" + geometry});
  };
  const Values rare = moved(rule("basis_rotation", {"optimizer.rotation.every=4"}), {4, 3});
  const Values first = moved(
      rule("basis_rotation", {"optimizer.rotation.every=2", "optimizer.rotation.source=first"}),
      {4, 3});
  CHECK(farthest(rare, moved(with("bilateral"), {4, 3})) > 100 * kFloat32);
  CHECK(farthest(first, moved(with("bilateral"), {4, 3})) > 100 * kFloat32);
  check_close(moved(with("bilateral"), {4, 3}),
              {-0.827888,
               -0.457373,
               -0.066736,
               -0.134694,
               0.075827,
               0.335851,
               0.144214,
               0.084772,
               0.335314,
               0.456653,
               0.484943,
               0.913072},
              kFloat32);
  check_close(moved(with("unilateral"), {4, 3}),
              {-0.827841,
               -0.308482,
               -0.054206,
               0.030709,
               0.23205,
               0.276366,
               0.373848,
               0.149296,
               0.220057,
               0.257563,
               0.37416,
               0.893199},
              kFloat32);
  check_close(moved(with("unilateral"), {2, 4}),
              {-0.786281, -0.369345, -0.007381, 0.190025, 0.055663, 0.331671, 0.428374, 0.406807},
              kFloat32);
}

// Of algorithm 3 in float64, with the first gradient kept for the basis as in the authors' code.
TEST_CASE("soap refreshes its basis after the step", "[schemes]") {
  check_close(moved(rule("soap", {"optimizer.rotation.every=2"}), {4, 3}),
              {-0.54537,
               -0.410949,
               0.054383,
               0.014668,
               -0.07787,
               0.097092,
               0.007778,
               0.056465,
               0.271669,
               0.397813,
               0.59914,
               0.782502},
              2e-5);
  OneParameter p(rule("soap"), {4, 3}, first_weights(12));
  p.step(gradient(1, 12));
  check_close(p.w(), first_weights(12), 1e-7);  // no step, no decay
}

TEST_CASE("what is rotated before is rotated after: the axes make no difference", "[schemes]") {
  const std::int64_t rows = 4;
  const std::int64_t columns = 3;
  const Values left = rotation(rows);
  const Values right = rotation(columns);
  const auto turned = [&](const Values& x, bool both) {
    return both ? product(product(left, x, rows), right, columns) : product(x, right, columns);
  };
  const auto distance = [&](const std::vector<std::string>& assignments, bool both) {
    OneParameter plain(assignments, {rows, columns}, first_weights(12));
    OneParameter other(assignments, {rows, columns}, turned(first_weights(12), both));
    for (int t = 1; t <= 7; ++t) {
      plain.step(gradient(t, 12));
      other.step(turned(gradient(t, 12), both));
    }
    Values apart = turned(plain.w(), both);
    const Values found = other.w();
    for (std::size_t i = 0; i < apart.size(); ++i) {
      apart[i] -= found[i];
    }
    return norm(apart);
  };
  for (const char* source : {"second", "first", "first_gram"}) {
    INFO(source);
    const std::string from = std::string("optimizer.rotation.source=") + source;
    CHECK(distance(rule("basis_rotation", {from, "optimizer.rotation.every=3"}), true) < 1e-4);
    CHECK(distance(rule("basis_rotation", {from, "optimizer.rotation.geometry=unilateral"}),
                   false) < 1e-4);
    // The rows, which are longer, are not rotated.
    CHECK(distance(rule("basis_rotation", {from, "optimizer.rotation.geometry=unilateral"}), true) >
          0.05);
    CHECK(distance(rule("basis_rotation", {from, "optimizer.rotation.side_max=3"}), true) > 0.05);
  }
  CHECK(distance(rule("soap"), true) < 1e-4);
  CHECK(distance(rule("adamw"), true) > 0.05);
}

TEST_CASE("sides that are too long are left as they are: with none left it is adamw", "[schemes]") {
  const Values alone = moved(rule("basis_rotation", {"optimizer.rotation.side_max=2"}), {4, 3});
  check_close(alone, moved(rule("adamw"), {4, 3}), 1e-6);
  // What is no matrix is adamw's, too.
  check_close(moved(rule("basis_rotation"), {12}), moved(rule("adamw"), {12}), 0);
}

TEST_CASE("a gradient that is no number spreads, and the basis stays one", "[schemes]") {
  OneParameter p(rule("basis_rotation", {"optimizer.rotation.every=1"}), {4, 3}, first_weights(12));
  p.step(Values(12));  // zero: any basis will do
  check_close(
      p.w(),
      [] {
        Values w = first_weights(12);
        for (double& x : w) {
          x *= 1 - kRate * 0.1;
        }
        return w;
      }(),
      1e-6);
  Values g = gradient(1, 12);
  g[5] = NAN;
  p.step(g);
  CHECK(std::isnan(p.w()[5]));
}

TEST_CASE("what rotated optimizers keep is counted, and read back", "[schemes]") {
  const auto bytes = [](const std::vector<std::string>& assignments) {
    return OneParameter(assignments, {4, 3}, first_weights(12)).optimizer_step().state_bytes();
  };
  CHECK(bytes(rule("soap")) == 4 * (2 * 16 + 2 * 16 + 2 * 9));
  CHECK(bytes(rule("basis_rotation", {"optimizer.rotation.source=first"})) ==
        4 * (2 * 16 + 16 + 9));
  CHECK(bytes(rule("basis_rotation", {"optimizer.rotation.geometry=unilateral"})) ==
        4 * (2 * 16 + 2 * 9));
  CHECK(bytes(rule("lars")) == 4 * 16);
  CHECK(bytes(rule("lamb")) == 4 * 2 * 16);
  for (const char* name : {"soap", "basis_rotation"}) {
    const auto assignments = rule(name, {"optimizer.rotation.every=2"});
    OneParameter whole(assignments, {4, 3}, first_weights(12));
    for (int t = 1; t <= 3; ++t) {
      whole.step(gradient(t, 12));
    }
    Archive out;
    whole.optimizer_step().archive(out);
    OneParameter resumed(assignments, {4, 3}, whole.w());
    Archive in(out.take());
    resumed.optimizer_step().archive(in);
    for (int t = 4; t <= 7; ++t) {
      whole.step(gradient(t, 12));
      resumed.step(gradient(t, 12));
    }
    check_close(resumed.w(), whole.w(), 0);
  }
}

TEST_CASE("error feedback corrects by the update before, where this optimizer has made it",
          "[schemes]") {
  constexpr double kFeedback = 0.5;
  const auto moved = [](OneParameter& p, int t) {
    const Values before = p.w();
    p.step(gradient(t, 12));
    Values by = p.w();
    for (std::size_t i = 0; i < by.size(); ++i) {
      by[i] = before[i] - by[i];
    }
    return by;
  };
  const auto update = [](int t,
                         double share) {  // of plain descent: u + c (u - u of the update before)
    Values u = gradient(t, 12);
    for (std::size_t i = 0; i < u.size(); ++i) {
      u[i] = kRate * (u[i] + share * (u[i] - gradient(t - 1, 12)[i]));
    }
    return u;
  };
  const std::vector<std::string> assignments{
      "optimizer.rule=sgd", "pipeline.weights=double_buffered", "pipeline.error_feedback=0.5"};
  OneParameter p(assignments, {12}, first_weights(12));
  check_close(moved(p, 1), update(1, 0), 1e-6);
  check_close(moved(p, 2), update(2, kFeedback), 1e-6);
  // Another cut begins with what was kept; the update before was not its own, and is not corrected.
  OneParameter other(assignments, {12}, p.w());
  Stream stream(Device{});
  REQUIRE(other.optimizer_step().begin(stream, p.optimizer_step().kept()));
  check_close(moved(other, 3), update(3, 0), 1e-6);
  check_close(moved(other, 4), update(4, kFeedback), 1e-6);
}

TEST_CASE("lars and lamb measure each parameter", "[schemes]") {
  for (const bool zero : {false, true}) {  // a bias, which has no norm at first
    Values w = zero ? Values(6) : first_weights(6);
    Values u = w;
    Values velocity(6);
    Values m(6);
    Values v(6);
    OneParameter lars(rule("lars", {"optimizer.trust=0.01"}), {2, 3}, w);
    OneParameter lamb(rule("lamb"), {6}, u);
    for (int t = 1; t <= 5; ++t) {
      Values g = gradient(t, 6);
      lars.step(g, 0.5);
      lamb.step(g, 0.5);
      for (double& x : g) {
        x *= 0.5;
      }
      const double local = norm(w) > 0 ? 0.01 * norm(w) / (norm(g) + 0.1 * norm(w)) : 1;
      Values step(6);
      for (std::size_t i = 0; i < 6; ++i) {
        velocity[i] = 0.9 * velocity[i] + kRate * local * (g[i] + 0.1 * w[i]);
        w[i] -= velocity[i];
        m[i] = 0.9 * m[i] + 0.1 * g[i];
        v[i] = 0.95 * v[i] + 0.05 * g[i] * g[i];
        step[i] =
            m[i] / (1 - std::pow(0.9, t)) / (std::sqrt(v[i] / (1 - std::pow(0.95, t))) + 0.01) +
            0.1 * u[i];
      }
      const double ratio = norm(u) > 0 ? norm(u) / norm(step) : 1;
      for (std::size_t i = 0; i < 6; ++i) {
        u[i] -= kRate * ratio * step[i];
      }
    }
    check_close(lars.w(), w, 2e-6);
    check_close(lamb.w(), u, 2e-6);
  }
}

TEST_CASE("a basis is refreshed towards the greatest eigenvalues", "[schemes]") {
  // diag(1, 9, 4), of which the identity knows the axes but not their order.
  const HostMatrix x{3, 3, {1, 0, 0, 0, 9, 0, 0, 0, 4}};
  const HostMatrix identity{3, 3, {1, 0, 0, 0, 1, 0, 0, 0, 1}};
  const Refreshed made = refreshed(x, identity);
  CHECK(made.order == std::vector<std::int64_t>{1, 2, 0});
  for (const HostMatrix& basis : {made.basis, eigenvectors(x)}) {
    for (std::int64_t i = 0; i < 9; ++i) {
      const bool one = i == 3 || i == 7 || i == 2;
      CHECK(std::abs(basis.values[at(i)]) == Approx(one ? 1 : 0).margin(1e-6));
    }
  }
  HostMatrix broken = x;
  broken.values[4] = NAN;
  CHECK(refreshed(broken, identity).basis.values == identity.values);
  CHECK(eigenvectors(broken).values == identity.values);
  CHECK(refreshed({3, 3, std::vector<float>(9)}, identity).basis.values == identity.values);
}

TEST_CASE("soap knows one source of its basis", "[schemes]") {
  for (const std::string source : {"first", "first_gram"}) {
    proto::Experiment e;
    REQUIRE(set_value(e, "optimizer.rule=soap"));
    REQUIRE(set_value(e, "optimizer.rotation.source=" + source));
    REQUIRE(resolve(e));
    const auto refused = check_optimizer(e);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message ==
          "optimizer.rotation.source: soap works with the mean of squares alone, and " + source +
              " looks at the mean gradient; use second, or optimizer.rule=basis_rotation");
  }
}

}  // namespace optimizers_test
