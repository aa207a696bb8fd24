#include "actors/pipeline/stage/stashes.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace troupe {

KeptForward& Stashes::keep(const Action& forward) {
  KeptForward& kept = kept_[micro_batch_of(forward)];
  count_max_ = std::max(count_max_, static_cast<std::int64_t>(kept_.size() + deltas_.size()));
  return kept;
}

const Weights& Stashes::weights(const Action& backward) const {
  const KeptForward* const kept = kept_.find(micro_batch_of(backward));
  TROUPE_CHECK(kept, "stage ", stage_, ": no stash for ", to_string(backward));
  return kept->weights;
}

KeptForward Stashes::take(const Action& backward) {
  std::optional<KeptForward> kept = kept_.take(micro_batch_of(backward));
  TROUPE_CHECK(kept, "stage ", stage_, ": no stash for ", to_string(backward));
  return std::move(*kept);
}

void Stashes::keep_deltas(const Action& input_gradient, Stash deltas) {
  deltas_[micro_batch_of(input_gradient)] = std::move(deltas);
}

Stash Stashes::take_deltas(const Action& weight_gradient) {
  std::optional<Stash> deltas = deltas_.take(micro_batch_of(weight_gradient));
  TROUPE_CHECK(deltas, "stage ", stage_, ": no deltas for ", to_string(weight_gradient));
  return std::move(*deltas);
}

void Stashes::record_count_max(Effects& fx) {
  if (!std::exchange(recorded_, true)) {
    fx.record(StageRecord{.stage = stage_, .stashes_max = count_max_});
  }
}

}  // namespace troupe
