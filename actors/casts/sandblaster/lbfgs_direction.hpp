// The direction of L-BFGS by the two-loop recursion (Nocedal & Wright 2006, section 7.2), as commands
// to shards that hold the vectors:
//
//   q = g; for pairs from the newest, alpha = rho s.q, q -= alpha y;
//   q *= s.y / y.y; for pairs from the oldest, q += (alpha - rho y.q) s; direction = -q
//
//   begin() --> backward (first loop) --> forward (second loop) --> slope: done
//
// A pair (s, y) is the step between two accepted points and the change of the gradient. It is kept
// only where s.y > 0, so that directions descend.
#pragma once

#include "messages/sandblaster.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace troupe {

class LbfgsDirection {
 public:
  using Commands = std::vector<VectorCommand>;

  /// `history`: pairs that are kept (m).
  explicit LbfgsDirection(std::int64_t history) : history_(history) {}

  /// Makes the point the weights, its gradient theirs, and, but for the `first` point, a pair of the
  /// difference. accepted() takes the dot products.
  Commands accept(bool first) const;
  void accepted(const std::vector<double>& dots);

  /// The first commands of a direction from the weights. next() takes the dot products of each batch
  /// of commands and gives the next; none: the direction is made and slope() is known.
  Commands begin();
  Commands next(const std::vector<double>& dots);

  /// Gradient times direction.
  double slope() const { return slope_; }

  /// Of the first step to try: the history tells the scale. Without one the step is of length 1 at
  /// most.
  double first_length() const;

  /// Drops the history; false where there is none.
  bool forget();

  void archive(auto& a) { a(pairs_, slot_, scale_, gradient_square_, phase_, at_, slope_); }

 private:
  enum class Phase : std::uint8_t { backward, forward, slope };

  struct Pair {
    std::int64_t slot = 0;
    double rho = 0;    // 1 / s.y
    double alpha = 0;  // of the present direction
  };

  Commands turn();
  Commands step_forward(double change_dot);
  Commands finish(Commands commands);

  std::int64_t history_;
  std::deque<Pair> pairs_;      // oldest first
  std::int64_t slot_ = 0;       // of the pair to come
  double scale_ = 1;            // s.y / y.y of the newest pair: the first guess at the curvature
  double gradient_square_ = 0;  // |g|^2 at the weights
  Phase phase_ = Phase::slope;
  std::size_t at_ = 0;  // pair that the loops are at
  double slope_ = 0;
};

}  // namespace troupe
