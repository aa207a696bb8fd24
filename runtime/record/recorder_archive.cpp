#include "messages/fields.hpp"
#include "runtime/record/recorder.hpp"

namespace troupe {

void Recorder::archive(Archive& a) {
  a(completed_,
    completed_at_,
    now_,
    diverged_,
    open_,
    window_,
    epoch_,
    shards_,
    times_,
    stashes_,
    evaluations_,
    bests_,
    consensus_,
    replicas_,
    passed_over_,
    exhausted_,
    mini_batches_,
    servers_,
    groups_,
    bytes_of_groups_,
    bytes_,
    lost_,
    returned_,
    lost_copies_,
    applied_,
    accounts_,
    restarts_,
    predictors_,
    modules_);
  if (!a.reading()) {
    return;
  }
  const auto check = [](const Histogram& staleness) {
    if (!countable(staleness)) {
      throw ArchiveError("the counts of staleness are none");
    }
  };
  check(window_.staleness);
  for (const Step& step : open_) {
    check(step.staleness);
  }
  for (const ShardTotals& totals : shards_) {
    check(totals.staleness);
  }
}

}  // namespace troupe
