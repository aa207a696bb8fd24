// What a server makes of one element of a late gradient, written once for host and device. Explicit
// float operations, no fused multiply-add.
#pragma once

#include "kernels/hd.hpp"
#include "kernels/late_gradient.hpp"

#include <cmath>
#include <tuple>

namespace troupe {

// Zheng et al. 2017, arXiv:1609.08326: a first-order expansion of the gradient with g g^T for the
// Hessian, of which the diagonal is kept. `moved` = w - w_read.

struct ConstantCompensation {
  static constexpr Compensation kind = Compensation::constant;
  static constexpr bool averages = false;

  TROUPE_HD float correct(const CompensationScalars& s,
                          float g,
                          float moved,
                          float& /*mean_square*/) const {
    return g + s.lambda * (g * g) * moved;
  }
};

struct AdaptiveCompensation {
  static constexpr Compensation kind = Compensation::adaptive;
  static constexpr bool averages = true;

  TROUPE_HD float correct(const CompensationScalars& s,
                          float g,
                          float moved,
                          float& mean_square) const {
    const float square = g * g;
    mean_square = s.decay * mean_square + (1.0f - s.decay) * square;
    return g + s.lambda / std::sqrt(mean_square + 1e-7f) * square * moved;
  }
};

struct AbsoluteCompensation {
  static constexpr Compensation kind = Compensation::absolute;
  static constexpr bool averages = false;

  TROUPE_HD float correct(const CompensationScalars& s,
                          float g,
                          float moved,
                          float& /*mean_square*/) const {
    return g + s.lambda * std::fabs(g) * moved;
  }
};

using Compensations = std::tuple<ConstantCompensation, AdaptiveCompensation, AbsoluteCompensation>;

/// Calls f(functor) with the functor of `kind`: one branch a tensor, none an element.
template <class F>
void with_compensation(Compensation kind, F&& f) {
  const bool found = [&]<class... Each>(std::tuple<Each...>*) {
    return ((Each::kind == kind ? (f(Each{}), true) : false) || ...);
  }(static_cast<Compensations*>(nullptr));
  TROUPE_CHECK(found, "[with_compensation] no functor of kind ", static_cast<int>(kind));
}

/// Barkai et al. 2020, arXiv:1909.10802.
TROUPE_HD inline float damped(float g, float moved, float reach) {
  return g / (1.0f + std::fabs(moved) / reach);
}

/// The same, each element in its own mean step; `square` is the mean of squared steps.
TROUPE_HD inline float damped_by_own_step(
    const OwnStepScalars& s, float g, float w, float moved, float square) {
  const float step = s.rate * (std::sqrt(s.correction * square) + 1e-8f);
  const float part = 1.0f / (1.0f + std::fabs(moved) / step);
  return g * part + s.weight_decay * w * (part - 1.0f);
}

TROUPE_HD inline float averaged_square(float decay, float square, float step) {
  return decay * square + (1.0f - decay) * (step * step);
}

/// Odena 2016, arXiv:1601.04033. Rounding can leave a variance below zero, which has no root; a NaN
/// stays.
TROUPE_HD inline float by_deviation(
    const DeviationScalars& s, float g, float& square, float& mean, float& deviation) {
  square = s.decay * square + (1.0f - s.decay) * (g * g);
  mean = s.decay * mean + (1.0f - s.decay) * g;
  const float variance = square - mean * mean;
  deviation =
      s.deviation_decay * deviation +
      (1.0f - s.deviation_decay) * std::sqrt((variance < 0.0f ? 0.0f : variance) + s.epsilon);
  return g / deviation;
}

}  // namespace troupe
