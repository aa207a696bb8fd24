#include "runtime/schemes/rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace troupe {

double Rate::at(std::int64_t step) const {
  const double base = optimizer_.learning_rate();
  double rate = base;
  const double progress =
      updates_ > 1 ? std::min(1.0, static_cast<double>(step) / static_cast<double>(updates_ - 1))
                   : 0.0;
  const auto& schedule = optimizer_.schedule();
  if (schedule.has_step()) {
    rate = base *
           std::pow(schedule.step().factor(), static_cast<double>(step / schedule.step().every()));
  } else if (schedule.has_cosine()) {
    const double end = schedule.cosine().end();
    rate = base * (end + (1 - end) * 0.5 * (1 + std::cos(std::numbers::pi * progress)));
  } else if (schedule.has_polynomial()) {
    const double end = schedule.polynomial().end();
    rate = base * (end + (1 - end) * std::pow(1 - progress, schedule.polynomial().power()));
  }
  if (step < optimizer_.warm_up()) {
    rate *= static_cast<double>(step + 1) / static_cast<double>(optimizer_.warm_up());
  }
  return rate;
}

}  // namespace troupe
