#include "actors/stage.hpp"
#include "messages/fields.hpp"

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
}

}  // namespace troupe
