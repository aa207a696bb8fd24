// How a stage goes on after its host, or that of a module in front of it, has crashed.
//
// Replicas that share servers come back with all of their machines, and get their weights of the servers. A decoupled
// module comes back by itself, with what its host has written down, and goes on with the first mini-batch of which all will
// come:
//
//   driver --Returned--> director --Returned--> source --Rejoin--> stage --Rejoin--> its shard, its predictors
//   stage --Activation{}--> next stage
//
// The modules behind it pass over the mini-batches that have never reached them, as if these were left out
// (decoupled.synthetic.update_probability): steps, evaluations and the end count as ever.
#include "actors/stage.hpp"
#include "messages/fields.hpp"

#include <utility>

namespace troupe {

void Stage::handle(Rejoin m, double now, Effects& fx) {
  if (!std::exchange(absent_, false)) {
    return;  // its host has crashed twice while the source was frozen, and was told of both returns at once
  }
  if (c_.served) {
    first_ = m.batch;
  } else {
    go_on(m, fx);
  }
  advance(now, fx);
}

/// Its steps are those of the run: what it has not made of the mini-batches before counts as left out.
void Stage::go_on(const Rejoin& m, Effects& fx) {
  const std::int32_t chunk = cursor_.action().chunk;
  begin_ = m.batch;
  updates_ = m.batch;
  cursor_.go_on(m.batch);
  arrivals_.forget_before(m.batch);
  fx.send(c_.shard_of[static_cast<std::size_t>(chunk)], m);
  if (!c_.predictors.empty() && !is_head(chunk)) {
    fx.send(c_.predictors[static_cast<std::size_t>(chunk)], m);
  }
  if (!c_.input_predictors.empty()) {
    fx.send(c_.input_predictors[static_cast<std::size_t>(chunk) - 1], m);
  }
  statistics_.go_on(m.batch, fx);
  note_finished(fx);
  if (m.batch > 0) {
    tell_of_loss({Act::forward, chunk, m.batch - 1, 0}, fx);
  }
}

/// Whether the input of this forward has died with a module in front of it.
bool Stage::lost(const Action& a) const {
  return a.act == Act::forward && a.batch < lost_before_ &&
         arrivals_.missing(a, needs(a.chunk)) == Want::activation;
}

/// Nothing of this mini-batch, nor of those before it that have not been sent on, will be.
void Stage::tell_of_loss(const Action& forward, Effects& fx) {
  begin_ = forward.batch + 1;
  arrivals_.forget_before(begin_);
  if (!is_head(forward.chunk) && c_.input_predictors.empty()) {
    fx.send(stage_of(forward.chunk + 1), Activation{stamp(forward, forward.chunk + 1), {}});
  }
}

void Stage::keep(Archive& a) {
  statistics_.keep(a);
}

}  // namespace troupe
