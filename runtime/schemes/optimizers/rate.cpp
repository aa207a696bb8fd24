#include "runtime/schemes/optimizers/rate.hpp"

#include "experiment/optimizer.pb.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace troupe {

Rate::Rate(const proto::Optimizer& optimizer,
           std::int64_t updates,
           std::vector<std::int64_t> milestones,
           double factor,
           std::int64_t before)
    : optimizer_(std::make_shared<const proto::Optimizer>(optimizer)),
      updates_(updates),
      milestones_(std::move(milestones)),
      factor_(factor),
      before_(before) {
  if (milestones_.empty()) {
    for (const double at : optimizer.schedule().milestones().at()) {
      milestones_.push_back(
          static_cast<std::int64_t>(std::ceil(at * static_cast<double>(updates) - 1e-9)));
    }
  }
}

double Rate::full() const {
  return factor_ * optimizer_->learning_rate();
}

double Rate::at(std::int64_t own_step) const {
  const std::int64_t step = before_ + own_step;
  const double base = full();
  double rate = base;
  const double progress =
      updates_ > 1 ? std::min(1.0, static_cast<double>(step) / static_cast<double>(updates_ - 1))
                   : 0.0;
  const auto& schedule = optimizer_->schedule();
  if (schedule.has_step()) {
    rate = base *
           std::pow(schedule.step().factor(), static_cast<double>(step / schedule.step().every()));
  } else if (schedule.has_cosine()) {
    const double end = schedule.cosine().end();
    rate = base * (end + (1 - end) * 0.5 * (1 + std::cos(std::numbers::pi * progress)));
  } else if (schedule.has_polynomial()) {
    const double end = schedule.polynomial().end();
    rate = base * (end + (1 - end) * std::pow(1 - progress, schedule.polynomial().power()));
  } else if (schedule.has_milestones()) {
    for (const std::int64_t milestone : milestones_) {
      if (step >= milestone) {
        rate *= schedule.milestones().factor();
      }
    }
  }
  if (step < optimizer_->warm_up()) {
    const double from = optimizer_->warm_up_from();
    rate *= from +
            (1 - from) * static_cast<double>(step + 1) / static_cast<double>(optimizer_->warm_up());
  }
  return rate;
}

}  // namespace troupe
