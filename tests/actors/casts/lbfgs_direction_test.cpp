// The two-loop recursion and the line search against dense arithmetic: commands are carried out on
// vectors of doubles here, as vector shards do it on theirs.
#include "actors/casts/sandblaster/lbfgs_direction.hpp"

#include "actors/casts/sandblaster/line_search.hpp"
#include "actors/casts/sandblaster/vector_names.hpp"
#include "tests/support/catch.hpp"

#include <cmath>
#include <limits>
#include <map>

namespace lbfgs_direction_test {

using namespace troupe;

namespace {

using Vector = std::vector<double>;
using Matrix = std::vector<Vector>;

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

Vector times(const Matrix& m, const Vector& v) {
  Vector out;
  for (const Vector& row : m) {
    out.push_back(dot(row, v));
  }
  return out;
}

Vector minus(const Vector& a, const Vector& b) {
  Vector out = a;
  for (std::size_t i = 0; i < a.size(); ++i) {
    out[i] -= b[i];
  }
  return out;
}

/// A shard that holds everything.
struct Vectors {
  std::map<VectorName, Vector> all;

  Vector carry_out(const LbfgsDirection::Commands& commands) {
    Vector dots;
    for (const VectorCommand& c : commands) {
      switch (c.kind) {
        case VectorCommand::Kind::copy:
          all[c.to] = all.at(c.a);
          break;
        case VectorCommand::Kind::scale:
          for (double& x : all.at(c.to)) {
            x *= c.factor;
          }
          break;
        case VectorCommand::Kind::add_scaled:
          for (std::size_t i = 0; i < all.at(c.to).size(); ++i) {
            all.at(c.to)[i] += c.factor * all.at(c.a)[i];
          }
          break;
        case VectorCommand::Kind::dot:
          dots.push_back(dot(all.at(c.to), all.at(c.a)));
          break;
      }
    }
    return dots;
  }

  void accept(LbfgsDirection& direction, const Vector& point, const Vector& gradient, bool first) {
    all[vectors::kPoint] = point;
    all[vectors::kSum] = gradient;
    direction.accepted(carry_out(direction.accept(first)));
  }

  Vector make(LbfgsDirection& direction) {
    auto commands = direction.begin();
    while (!commands.empty()) {
      commands = direction.next(carry_out(commands));
    }
    return all.at(vectors::kDirection);
  }
};

struct Point {
  Vector x;
  Vector g;
};

/// Points of a quadratic in 4 dimensions, with gradients A x.
std::vector<Point> points() {
  const Matrix a{{4, 1, 0, 0}, {1, 3, 1, 0}, {0, 1, 2, 0.5}, {0, 0, 0.5, 1}};
  std::vector<Point> all;
  for (const Vector& x : {Vector{1, 2, 3, 4},
                          Vector{0.5, 2, 1, 3},
                          Vector{0.25, -1, 1, 2},
                          Vector{0.125, -0.5, 2, 1.5}}) {
    all.push_back({x, times(a, x)});
  }
  return all;
}

/// -H g, H by the dense update of BFGS from the last `history` pairs (Nocedal & Wright 2006, (7.16)).
Vector dense_direction(const std::vector<Point>& at, std::size_t history) {
  const std::size_t n = at.front().x.size();
  const std::size_t last = at.size() - 1;
  const auto s_of = [&](std::size_t k) {
    return minus(at[k + 1].x, at[k].x);
  };
  const auto y_of = [&](std::size_t k) {
    return minus(at[k + 1].g, at[k].g);
  };
  const double scale = dot(s_of(last - 1), y_of(last - 1)) / dot(y_of(last - 1), y_of(last - 1));
  Matrix h(n, Vector(n));
  for (std::size_t i = 0; i < n; ++i) {
    h[i][i] = scale;
  }
  for (std::size_t k = last - std::min(history, last); k < last; ++k) {
    const Vector s = s_of(k);
    const Vector y = y_of(k);
    const double rho = 1 / dot(s, y);
    Matrix v(n, Vector(n));  // I - rho s y'
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        v[i][j] = (i == j ? 1 : 0) - rho * s[i] * y[j];
      }
    }
    Matrix next(n, Vector(n));  // v h v' + rho s s'
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        next[i][j] = dot(v[i], times(h, v[j])) + rho * s[i] * s[j];
      }
    }
    h = next;
  }
  Vector direction = times(h, at.back().g);
  for (double& x : direction) {
    x = -x;
  }
  return direction;
}

}  // namespace

TEST_CASE(
    "without a history the direction is downhill, and the first step is of length 1 at most") {
  Vectors shard;
  LbfgsDirection direction(3);
  shard.accept(direction, {0, 0}, {3, -4}, true);
  CHECK(shard.make(direction) == Vector{-3, 4});
  CHECK(direction.slope() == -25);
  CHECK(direction.first_length() == Approx(0.2));
  CHECK_FALSE(direction.forget());
}

TEST_CASE("the two loops give the direction of the dense update") {
  for (const std::size_t history : {1, 2, 10}) {
    Vectors shard;
    LbfgsDirection direction(static_cast<std::int64_t>(history));
    std::vector<Point> seen;
    for (const Point& point : points()) {
      shard.accept(direction, point.x, point.g, seen.empty());
      seen.push_back(point);
      const Vector made = shard.make(direction);
      if (seen.size() == 1) {
        continue;
      }
      const Vector expected = dense_direction(seen, history);
      for (std::size_t i = 0; i < made.size(); ++i) {
        INFO("history " << history << ", point " << seen.size() << ", element " << i);
        CHECK(made[i] == Approx(expected[i]).epsilon(1e-5));  // factors travel as floats
      }
      CHECK(direction.slope() == Approx(dot(made, point.g)));
      CHECK(direction.slope() < 0);
      CHECK(direction.first_length() == 1);
    }
  }
}

TEST_CASE("a pair that would turn descent into ascent is not kept") {
  Vectors shard;
  LbfgsDirection direction(3);
  shard.accept(direction, {0, 0}, {1, 1}, true);
  shard.accept(direction, {1, 0}, {0.5, 1}, false);  // s.y = -0.5
  CHECK(shard.make(direction) == Vector{-0.5, -1});
  CHECK_FALSE(direction.forget());
}

TEST_CASE("what was forgotten is not used again") {
  Vectors shard;
  LbfgsDirection direction(3);
  const std::vector<Point> at = points();
  shard.accept(direction, at[0].x, at[0].g, true);
  shard.accept(direction, at[1].x, at[1].g, false);
  CHECK(direction.forget());
  Vector downhill = at[1].g;
  for (double& x : downhill) {
    x = -x;
  }
  CHECK(shard.make(direction) == downhill);
}

TEST_CASE("a step is shortened until the loss has fallen by its share of the slope") {
  LineSearch search({.armijo = 0.5, .shrink = 0.5});
  search.accept(10);
  search.begin(-4, 1);
  CHECK(search.enough(8));
  CHECK_FALSE(search.enough(8.5));
  CHECK_FALSE(search.enough(std::numeric_limits<double>::quiet_NaN()));
  CHECK(search.shorten());
  CHECK(search.length() == 0.5);
  CHECK(search.enough(9));
}

TEST_CASE("the line search gives up after 40 steps, counted from the last accepted point") {
  LineSearch search({.armijo = 0.5, .shrink = 0.5});
  search.accept(1);
  search.begin(-1, 1);
  for (int i = 0; i < 40; ++i) {
    REQUIRE(search.shorten());
  }
  CHECK_FALSE(search.shorten());
  search.accept(0.5);
  search.begin(-1, 1);
  CHECK(search.shorten());
}

}  // namespace lbfgs_direction_test
