#include "actors/server/server_shard.hpp"
#include "messages/archive.hpp"

namespace troupe {

void ServerShard::archive(Archive& a) {
  a(rate_factor_,
    weights_,
    replicas_,
    run_,
    pins_,
    account_,
    pushes_,
    verdicts_,
    verdict_sender_,
    differences_,
    lost_mini_batches_,
    broadcast_clock_,
    update_begun_,
    finished_,
    halted_);
  if (lost_mini_batches_ < 0 || broadcast_clock_ < 0) {
    throw ArchiveError(
        "a server that has lost a negative number of mini-batches, or has a negative clock");
  }
  if (above_) {
    above_->archive(a);
  }
}

}  // namespace troupe
