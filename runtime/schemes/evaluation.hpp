// Which steps of a run are evaluated: the one place that says so.
#pragma once

#include <cstdint>

namespace troupe {

struct EvaluationPlan {
  std::int64_t every = 0;   // steps; 0: none in between
  std::int64_t before = 0;  // steps that count and were made before step 0

  bool due(std::int64_t step) const { return every > 0 && (before + step) % every == 0; }

  /// The first step after `step` that is due; only where `every` is set.
  std::int64_t next(std::int64_t step) const {
    return ((before + step) / every + 1) * every - before;
  }

  /// The last step up to `step` that is due and comes after `from`; 0: there is none.
  std::int64_t passed(std::int64_t from, std::int64_t step) const {
    const bool some = every > 0 && (before + step) / every > (before + from) / every;
    return some ? (before + step) / every * every - before : 0;
  }
};

}  // namespace troupe
