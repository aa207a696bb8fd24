// Which steps of a run are evaluated: the one place that says so.
#pragma once

#include <cstdint>

namespace troupe {

struct EvaluationPlan {
  std::int64_t every = 0;  // steps; 0: none in between

  bool due(std::int64_t step) const { return every > 0 && step % every == 0; }

  /// The first step after `step` that is due; only where `every` is set.
  std::int64_t next(std::int64_t step) const { return (step / every + 1) * every; }

  /// The last step up to `step` that is due and comes after `before`; 0: there is none.
  std::int64_t passed(std::int64_t before, std::int64_t step) const {
    return every > 0 && step / every > before / every ? step / every * every : 0;
  }
};

}  // namespace troupe
