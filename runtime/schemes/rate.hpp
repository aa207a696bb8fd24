// The learning rate of every update.
#pragma once

#include "experiment.pb.h"

#include <cstdint>

namespace troupe {

class Rate {
 public:
  /// `updates`: how many the run will make, for schedules that end with it; 0 where that is not
  /// known.
  Rate(const proto::Optimizer& optimizer, std::int64_t updates)
      : optimizer_(optimizer), updates_(updates) {}

  /// Of the update that follows step `step`.
  double at(std::int64_t step) const;

 private:
  proto::Optimizer optimizer_;
  std::int64_t updates_;
};

}  // namespace troupe
