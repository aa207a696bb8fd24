// The learning rate of every update.
#pragma once

#include "messages/proto.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

class Rate {
 public:
  /// `updates`: how many the run will make, for schedules that end with it; 0 where that is not
  /// known. `milestones`: the step of each of the schedule's; empty: by share of the updates, which is
  /// right where all mini-batches are alike.
  /// `factor` multiplies the learning rate (rate_factor of runtime/schemes/rules/rule.hpp). `before`: of the updates,
  /// those that were made before step 0.
  Rate(const proto::Optimizer& optimizer,
       std::int64_t updates,
       std::vector<std::int64_t> milestones = {},
       double factor = 1,
       std::int64_t before = 0);

  /// Of the update that follows step `step`.
  double at(std::int64_t step) const;

  std::int64_t before() const { return before_; }

  /// What warm-up rises to and schedules begin with.
  double full() const;

 private:
  std::shared_ptr<const proto::Optimizer> optimizer_;
  std::int64_t updates_;
  std::vector<std::int64_t> milestones_;  // steps
  double factor_;
  std::int64_t before_;
};

}  // namespace troupe
