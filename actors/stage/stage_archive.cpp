#include "actors/stage.hpp"
#include "messages/archive.hpp"

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
    halted_,
    passing_over_,
    absent_,
    running_,
    finished_);
}

}  // namespace troupe
