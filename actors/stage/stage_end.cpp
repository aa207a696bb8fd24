// How a stage comes to its end.
//
// Where modules draw their inputs from buffers (decoupled.greedy.buffer) one may be in front of what has been admitted,
// so that the source cannot say by itself where a run ends that is ended early:
//
//   source --Halt--> stages --Halted{mini-batches begun}--> source --End{the most of these}--> everyone
//
// In between a stage begins no mini-batch. One that has begun fewer passes over the others: its updates of these move
// nothing, as it has no time to make them, and steps, evaluations and the end count as ever.
#include "actors/stage.hpp"
#include "messages/ending.hpp"
#include "messages/evaluation.hpp"

#include <algorithm>

namespace troupe {

void Stage::handle(End m, double now, Effects& fx) {
  cursor_.set_end(m.batches);
  passing_over_ = halted_;
  wait_.end(now, fx);  // it may have nothing left to wait for
  note_finished(fx);
  advance(now, fx);
}

void Stage::handle(Halt, double now, Effects& fx) {
  halted_ = true;
  wait_.end(now, fx);
  std::int64_t begun = 0;
  for (const auto& [chunk, batches] : begun_) {
    begun = std::max(begun, batches);
  }
  fx.send(c_.source, Halted{cursor_.action().chunk, 0, begun});
}

/// In place of Start, of a replica that has come back.
void Stage::handle(Rejoin m, double now, Effects& fx) {
  absent_ = false;
  first_ = m.batch;
  advance(now, fx);
}

void Stage::pass_over(const Action& a, double now, Effects& fx) {
  if (a.act == Act::update) {
    in_hand_.drop({a.chunk, 0});
    shards_.push(
        a, BatchGradient{.gradient = {}, .reads = {}, .read_time = now, .forward = {}}, fx);
    ++updates_;
    note_finished(fx);
  } else if (a.act == Act::forward) {
    statistics_.finish_batch(a.chunk, a.batch, fx);
    fx.record(InputRecord{in_run(a), Drawn::none});
  }
}

void Stage::handle(Release m, double now, Effects& fx) {
  if (!m.conclude) {
    statistics_.release(m.step);
    evaluations_.release(m.step);
    return;
  }
  if (c_.served) {  // its own sequence has no end
    wait_.end(now, fx);
    stashes_.tell(fx);
  }
  statistics_.conclude(m.step, fx);
}

void Stage::note_finished(Effects& fx) {
  if (!finished_ && cursor_.end() && updates_ == *cursor_.end() * statistics_.chunks()) {
    finished_ = true;
    stashes_.tell(fx);
  }
}

}  // namespace troupe
