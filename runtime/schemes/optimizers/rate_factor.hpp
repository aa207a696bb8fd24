// What the learning rate is multiplied by while the run goes on (ScaleRate).
#pragma once

#include "kernels/check.hpp"

#include <cmath>

namespace troupe {

/// An update under way keeps the factor that it began with.
class RateFactor {
 public:
  /// From the next update on. ContractError where `factor` is negative, infinite or no number.
  void ask(double factor) {
    TROUPE_CHECK(std::isfinite(factor) && factor >= 0,
                 "[ScaleRate] the learning rate cannot be multiplied by ",
                 factor,
                 ": a factor is a finite number of at least 0");
    asked_ = factor;
  }

  /// An update begins: what was asked for counts from now on.
  void begin() { value_ = asked_; }

  /// Of the update under way, or of the last one.
  double value() const { return value_; }

  void archive(auto& a) { a(asked_, value_); }

 private:
  double asked_ = 1;
  double value_ = 1;
};

}  // namespace troupe
