// How a stage goes on after its host, or that of a module in front of it, has crashed.
//
// Replicas that share servers come back with all of their machines, and get their weights of the servers. A decoupled
// module comes back by itself, with what its host has written down, and goes on with the mini-batch that the stage before
// sends next (with predictors of inputs: with what the source admits next):
//
//   driver --Returned--> director --Returned--> source --Halt--> stage --ErrorSignal{}--> stage before
//   stage before --Activation{}--> stage --Halted--> source --Rejoin, Labels--> stage --Rejoin--> its shard, its predictors
//   stage --Activation{}--> next stage
//
// An empty Activation says: of its mini-batch, and of those before it, nothing comes that has not come.
//
// The modules behind it pass over the mini-batches that have never reached them, as if these were left out
// (decoupled.synthetic.update_probability): steps, evaluations and the end count as ever.
#include "actors/stage.hpp"
#include "messages/archive.hpp"
#include "messages/ending.hpp"
#include "messages/pipeline.hpp"
#include "messages/returns.hpp"

#include <utility>

namespace troupe {

/// A second question, of an earlier return, may come when it has gone on.
void Stage::ask_where(Effects& fx) {
  if (!absent_) {
    return;
  }
  asked_ = true;
  const std::int32_t before = cursor_.action().chunk - 1;
  fx.send(stage_of(before), ErrorSignal{stamp(cursor_.action(), before), {}});
  tell_where(fx);
}

/// The module behind it is there again. One that has come back itself and waits will tell it when it goes on.
void Stage::answer_returned(Effects& fx) {
  if (!absent_) {
    const Action a = cursor_.action();
    const std::int64_t next = a.act == Act::forward ? a.batch : a.batch + 1;
    const Stamp last{c_.replica, a.chunk + 1, next - 1, 0};
    fx.send(stage_of(a.chunk + 1), Activation{last, {}});
  }
}

/// Where it goes on, once the stage before has said it.
void Stage::tell_where(Effects& fx) {
  if (absent_ && asked_ && lost_before_ >= 0) {
    asked_ = false;
    fx.send(c_.source, Halted{cursor_.action().chunk, 0, lost_before_});
  }
}

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
  tell_of_loss({Act::forward, chunk, m.batch - 1, 0}, fx);
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
