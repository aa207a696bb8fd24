#include "actors/stage.hpp"
#include "messages/archive.hpp"
#include "messages/archive_sized.hpp"

namespace troupe {

void Stage::archive(Archive& a) {
  a(cursor_,
    shards_,
    in_hand_,
    arrivals_,
    stashes_,
    sums_,
    statistics_,
    evaluations_,
    wait_,
    forward_weights_,
    updates_,
    first_,
    begun_,
    begin_,
    lost_before_,
    halted_,
    passing_over_,
    absent_,
    asked_,
    running_,
    finished_);
  constexpr std::int64_t kMost =
      1'000'000;  // mini-batches that a module passes over when it comes back
  expect_archived(begin_ >= 0 && begin_ <= cursor_.action().batch + kMost,
                  "the state has a stage that begins where it never comes to");
}

}  // namespace troupe
