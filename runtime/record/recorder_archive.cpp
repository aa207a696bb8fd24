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
    mini_batches_,
    servers_,
    bytes_,
    lost_,
    returned_,
    predictors_);
}

}  // namespace troupe
