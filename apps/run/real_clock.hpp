// What of an experiment the real clock has to know.
#pragma once

#include "apps/topologies/blueprint.hpp"
#include "runtime/system/threads.hpp"
#include "runtime/system/time_model.hpp"

namespace troupe {

class RealClock {
 public:
  /// The blueprint outlives it.
  explicit RealClock(const Blueprint& blueprint);

  /// `modelled` and `hold_back`; the rest is the caller's. It outlives the run.
  ThreadOptions options() const;

 private:
  const Blueprint& blueprint_;
  TimeModel times_;
};

/// The times that clock.* models, for either clock.
TimeModel time_model_of(const Blueprint& blueprint);

}  // namespace troupe
