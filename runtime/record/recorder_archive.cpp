#include "messages/archive.hpp"
#include "messages/archive_sized.hpp"
#include "runtime/record/recorder.hpp"

namespace troupe {

void Recorder::archive(Archive& a) {
  archive_sized(a, shards_);
  a(completed_,
    completed_at_,
    now_,
    diverged_,
    open_,
    window_,
    epoch_,
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
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const std::int64_t arrived = mini_batches_ / c_.batches_per_update;
  expect_archived(completed_ >= 0 && completed_ <= kMost && mini_batches_ >= 0 &&
                      (!c_.arrivals || completed_ == arrived) && window_.steps >= 0,
                  "the counts of updates are none");
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
