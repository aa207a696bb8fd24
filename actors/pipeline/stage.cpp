#include "actors/pipeline/stage.hpp"

#include "actors/pipeline/stage/jobs.hpp"
#include "messages/archive_sized.hpp"
#include "messages/bad_sender.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

// Actions behind the end of the run, one after the other: a sequence has no end of its own.
constexpr std::int64_t kBeyondMax = 1'000'000;

}  // namespace

Stage::Stage(Config config)
    : c_(std::move(config)),
      cursor_(c_.schedule, c_.stage),
      work_(c_, cursor_),
      evaluations_(c_.chunks, work_.shards()),
      wait_(c_.company.self.id),
      absent_(c_.returns) {
  c_.statistics.initial.clear();  // nobody else is to have handles of them
}

void Stage::handle(Start, double now, Effects& fx) {
  advance(now, fx);
}

/// In place of Start, of a replica that has come back.
void Stage::handle(Rejoin m, double now, Effects& fx) {
  absent_ = false;
  work_.begin_at(m.batch);
  advance(now, fx);
}

void Stage::handle(Activation&& m, double now, Effects& fx) {
  TROUPE_BELIEVE(!m.bundle.empty(), "an empty activation");
  work_.keep(std::move(m));
  advance(now, fx);
}

void Stage::handle(Labels&& m, double now, Effects& fx) {
  TROUPE_BELIEVE(m.labels.shape()[0] >= c_.schedule->width, "labels of fewer samples than parts");
  work_.keep(std::move(m));
  advance(now, fx);
}

void Stage::handle(ErrorSignal&& m, double now, Effects& fx) {
  TROUPE_BELIEVE(!m.bundle.empty(), "an empty error signal");
  work_.keep(std::move(m));
  advance(now, fx);
}

void Stage::handle(PullReply&& m, double now, Effects& fx) {
  if (evaluations_.came(m)) {
    evaluate(now, fx);
  } else if (work_.came(m)) {
    advance(now, fx);
  }  // else: an answer to no open question
}

// -- the sequence ----------------------------------------------------------------------------------

void Stage::advance(double now, Effects& fx) {
  std::int64_t beyond = 0;
  while (!running_ && !finished_ && !absent_) {
    const Action a = cursor_.action();
    if (cursor_.beyond_end(a)) {
      TROUPE_CHECK(++beyond < kBeyondMax, "stage ", c_.stage, " finds no end of its sequence");
      cursor_.pass();
    } else if (const auto& drawn = work_.drawn(); drawn && drawn->beyond_halt(a)) {
      if (!drawn->passes_over()) {
        break;
      }
      pass_over(a, now, fx);
      cursor_.pass();
    } else if (a.act == Act::update) {
      work_.push(a, fx);
      count_update(fx);
      cursor_.pass();
    } else if (work_.start(a, now, fx)) {
      wait_.end(now, fx);
      running_ = true;
    } else {
      // If several things are missing, one that the stage cannot pull itself.
      wait_.begin(work_.missing(a).value_or(Want::weights), now, fx);
      break;
    }
  }
  evaluate(now, fx);
}

/// The action whose job has come back; the next one may start.
Action Stage::finished_action() {
  running_ = false;
  return cursor_.pass();
}

void Stage::handle(Ran<ForwardPass>&& m, double now, Effects& fx) {
  if (m.lane == Lane::mark) {
    finish_evaluation_batch(std::move(m.made), now, fx);
  } else {
    finish(std::move(m.made), now, fx);
  }
}

template <class T>
void Stage::finish(T&& made, double now, Effects& fx) {
  work_.finish(finished_action(), std::forward<T>(made), fx);
  advance(now, fx);
}

void Stage::handle(Ran<BackwardPass>&& m, double now, Effects& fx) {
  finish(std::move(m.made), now, fx);
}

void Stage::handle(Ran<InputGradient>&& m, double now, Effects& fx) {
  finish(std::move(m.made), now, fx);
}

void Stage::handle(Ran<WeightGradient>&& m, double now, Effects& fx) {
  finish(std::move(m.made), now, fx);
}

// -- evaluations -----------------------------------------------------------------------------------

void Stage::handle(MarkBatch&& m, double now, Effects& fx) {
  evaluations_.add(std::move(m));
  evaluate(now, fx);
}

void Stage::evaluate(double now, Effects& fx) {
  if (absent_ || !evaluations_.ready(fx)) {
    return;
  }
  wait_.pause(now, fx);
  evaluations_.begin();
  const MarkBatch& batch = evaluations_.first();
  run(fx,
      {.lane = Lane::mark, .stage = c_.stage, .stamp = {c_.replica, batch.chunk, batch.step, 0}},
      ForwardJob{.chunk = c_.chunks[static_cast<std::size_t>(batch.chunk)],
                 .weights = evaluations_.weights(),
                 .buffers = work_.statistics().at(batch.chunk, batch.step),
                 .input = batch.bundle,
                 .labels = batch.labels,
                 .training = false});
}

void Stage::finish_evaluation_batch(ForwardPass&& made, double now, Effects& fx) {
  MarkBatch batch = evaluations_.finish();
  const std::int32_t chunk = batch.chunk;
  const std::int64_t part = c_.chunks[static_cast<std::size_t>(chunk)]->part().rank;
  if (work_.is_head(chunk)) {
    fx.send(c_.company.source, MarkResult{batch.step, batch.index, std::move(made.result), part});
  } else {
    for (auto& [to, bundle] : work_.to_behind(chunk, std::move(made.y))) {
      MarkBatch next = batch;
      next.chunk = to;
      next.bundle = std::move(bundle);
      if (to % c_.schedule->width != part) {
        next.labels = {};  // the other parts have them, too
      }
      fx.send(work_.stage_of(to), std::move(next));
    }
  }
  wait_.resume(now);
  evaluate(now, fx);
}

// -- the end ---------------------------------------------------------------------------------------

void Stage::handle(End m, double now, Effects& fx) {
  cursor_.set_end(m.batches);
  if (auto& drawn = work_.drawn()) {
    drawn->end();
  }
  wait_.end(now, fx);  // it may have nothing left to wait for
  note_finished(fx);
  advance(now, fx);
}

void Stage::handle(Halt, double now, Effects& fx) {
  if (auto& drawn = work_.drawn()) {
    wait_.end(now, fx);
    fx.send(c_.company.source, Halted{cursor_.action().chunk, 0, drawn->halt()});
  }
}

void Stage::pass_over(const Action& a, double now, Effects& fx) {
  work_.pass_over(a, now, fx);
  if (a.act == Act::update) {
    count_update(fx);
  }
}

void Stage::count_update(Effects& fx) {
  ++updates_;
  note_finished(fx);
}

void Stage::handle(Release m, double now, Effects& fx) {
  if (!m.conclude) {
    work_.statistics().release(m.step);
    evaluations_.release(m.step);
    return;
  }
  if (c_.served) {  // its own sequence has no end
    wait_.end(now, fx);
    work_.stashes().tell(fx);
  }
  work_.statistics().conclude(m.step, fx);
}

void Stage::note_finished(Effects& fx) {
  if (!finished_ && cursor_.end() &&
      updates_ == c_.schedule->share_of(c_.stage, *cursor_.end()) * work_.statistics().chunks()) {
    finished_ = true;
    work_.stashes().tell(fx);
  }
}

void Stage::archive(Archive& a) {
  a(cursor_, work_, evaluations_, wait_, updates_, absent_, running_, finished_);
}

std::string Stage::waits_for() const {
  if (running_) {
    return "its own kernel";
  }
  if (finished_) {
    return "";
  }
  const Action a = cursor_.action();
  return to_string(a) + " needs " + work_.waits_for(a);
}

}  // namespace troupe
