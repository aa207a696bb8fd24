// The server of a group of replicas, under one for all groups: what it has accumulated goes up, and what comes down
// is merged. Its own replicas never wait for that.
#include "actors/server/server_shard.hpp"
#include "messages/bad_sender.hpp"

#include <utility>

namespace troupe {

void ServerShard::handle(Answer m, double now, Effects& fx) {
  TROUPE_BELIEVE(above_, "server ", c_.chunk, ": an answer that nobody asked for");
  if (above_->came(std::move(m))) {
    advance(now, fx);
  }
}

/// Merges the answer of the server above; if all replicas of the group are dead, sends up the pushes that they have left
/// behind. False: there is nothing to do.
bool ServerShard::exchange_above(Effects& fx) {
  if (!above_ || busy()) {
    return false;
  }
  const bool left = replicas_.ledger().living() == 0 && pushes_.waiting().empty();
  if (!above_->has_answer() && !(left && above_->has_unsent())) {
    return false;
  }
  Combine job{.from = c_.self,
              .stamp = {.chunk = c_.chunk, .batch = version()},
              .update = make_update(false),
              .forget = replicas_.take_gone()};
  if (above_->has_answer()) {
    above_->merge(job);
  } else {
    above_->flush(job);
  }
  fx.send(c_.optimizer, std::move(job));
  return true;
}

/// A push of a group's server is answered at that server.
void ServerShard::send_answer(Answer reply, Effects& fx) {
  const auto who = static_cast<std::size_t>(reply.replica);
  if (c_.below.empty()) {
    fx.send(c_.replicas[who], std::move(reply));
  } else {
    reply.far = true;
    fx.send(c_.below[who], std::move(reply));
  }
}

}  // namespace troupe
