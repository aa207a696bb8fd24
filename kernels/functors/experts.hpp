// The arithmetic of routing, written once for host and device.
#pragma once

#include "kernels/hd.hpp"

#include <cstdint>
#include <limits>

namespace troupe {

constexpr std::int32_t kExpertsEnd = std::numeric_limits<std::int32_t>::max();
constexpr float kAboveAll = std::numeric_limits<float>::infinity();

/// An expert that a row may choose. All of them are in one order, so that what was chosen before is known by the last of it.
struct Candidate {
  float logit;  // no NaN
  std::int32_t expert;

  /// A NaN is no reason to choose.
  TROUPE_HD static Candidate of(float logit, std::int32_t expert) {
    return {logit == logit ? logit : -kAboveAll, expert};
  }

  TROUPE_HD bool is_before(const Candidate& other) const {
    return logit > other.logit || (logit == other.logit && expert < other.expert);
  }
};

/// Before all candidates, and behind them.
TROUPE_HD inline Candidate before_all() {
  return {kAboveAll, -1};
}

TROUPE_HD inline Candidate behind_all() {
  return {-kAboveAll, kExpertsEnd};
}

/// What a gradient by the gates comes to by the shares of the chosen ones: a gate is its share, of several over their sum.
struct GateGradient {
  double mean = 0;  // what each loses to the sum that it is divided by
  double sum = 1;   // of the chosen shares

  TROUPE_HD double by_share(float by_gate) const {
    return (static_cast<double>(by_gate) - mean) / sum;
  }
};

/// The gradient by a logit of the softmax; `along`: the shares' mean of by_share.
TROUPE_HD inline float by_logit(float share, double by_share, double along) {
  return static_cast<float>(static_cast<double>(share) * (by_share - along));
}

}  // namespace troupe
