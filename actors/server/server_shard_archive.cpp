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
    verdicts_to_tell_,
    differences_,
    missing_,
    told_clock_,
    begun_,
    finished_,
    halted_);
  if (missing_ < 0 || told_clock_ < 0) {
    throw ArchiveError("a server that lacks fewer mini-batches than none");
  }
  if (above_) {
    above_->archive(a);
  }
}

}  // namespace troupe
