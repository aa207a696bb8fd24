// How a shard of a replica that has come back gets its first weights: those of the servers, all slices of
// them before its stage reads one.
#include "actors/exchange/upstream.hpp"
#include "messages/update.hpp"

namespace troupe {

/// Asks as after a mini-batch, but nothing was made: the answers are step 0.
void Upstream::rejoin(std::int64_t batch, Effects& fx) {
  TROUPE_CHECK(host().step() == -1 && !next_, "shard ", c_.chunk, ": a Rejoin while it is at work");
  first_ = batch;
  seen_.clear();
  next_.emplace();
  for (LinkState& link : links_) {
    link.messages = batch;  // no message draws what one of before had drawn
  }
  for (std::size_t s = 0; s < lines_.size(); ++s) {
    upload(s, {}, true, 0, fx);
    lines_[s].due = 0;  // a fetch that overlaps begins with the mini-batches
    lines_[s].asked = 0;
  }
}

}  // namespace troupe
