#include "actors/pipeline/stage.hpp"

#include "actors/pipeline/stage/jobs.hpp"
#include "messages/archive_sized.hpp"
#include "messages/bad_sender.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

// More actions than that in a row, all after the end of the run, mean that the schedule has a mistake.
constexpr std::int64_t kBeyondEndMax = 1'000'000;

}  // namespace

Stage::Stage(Config config)
    : c_(std::move(config)),
      cursor_(c_.schedule, c_.stage),
      work_(c_, cursor_),
      evaluations_(c_.chunks, work_.shards()),
      wait_(c_.company.self.id),
      absent_(c_.returns) {
  // Otherwise it would keep their memory after the first forward has replaced them.
  c_.statistics.initial.clear();
}

void Stage::handle(Start, double now, Effects& fx) {
  start_actions(now, fx);
}

/// The machines of a replica that has come back get this in place of Start.
void Stage::handle(Rejoin m, double now, Effects& fx) {
  absent_ = false;
  work_.begin_at(m.batch);
  start_actions(now, fx);
}

void Stage::handle(Activation&& m, double now, Effects& fx) {
  TROUPE_BELIEVE(!m.bundle.empty(), "an empty activation");
  work_.keep(std::move(m));
  start_actions(now, fx);
}

void Stage::handle(Labels&& m, double now, Effects& fx) {
  TROUPE_BELIEVE(m.labels.shape()[0] >= c_.schedule->width, "labels of fewer samples than parts");
  work_.keep(std::move(m));
  start_actions(now, fx);
}

void Stage::handle(ErrorSignal&& m, double now, Effects& fx) {
  TROUPE_BELIEVE(!m.bundle.empty(), "an empty error signal");
  work_.keep(std::move(m));
  start_actions(now, fx);
}

void Stage::handle(PullReply&& m, double now, Effects& fx) {
  if (evaluations_.accept(m)) {
    evaluate(now, fx);
  } else if (work_.accept(m)) {
    start_actions(now, fx);
  }  // else the same reply came twice
}

// -- the sequence ----------------------------------------------------------------------------------

void Stage::start_actions(double now, Effects& fx) {
  std::int64_t beyond_end = 0;
  while (!running_ && !finished_ && !absent_) {
    const Action a = cursor_.action();
    if (cursor_.beyond_end(a)) {
      TROUPE_CHECK(
          ++beyond_end < kBeyondEndMax, "stage ", c_.stage, " finds no end of its sequence");
      cursor_.advance();
    } else if (const auto& drawn = work_.drawn(); drawn && drawn->not_begun_at_halt(a)) {
      if (!drawn->skips()) {
        break;
      }
      skip(a, now, fx);
      cursor_.advance();
    } else if (a.act == Act::update) {
      work_.push(a, fx);
      count_update(fx);
      cursor_.advance();
    } else if (work_.start(a, now, fx)) {
      wait_.end(now, fx);
      running_ = true;
    } else {
      // Where messages and weights are both missing, the wait counts as one for the message.
      wait_.begin(work_.missing(a).value_or(Want::weights), now, fx);
      break;
    }
  }
  evaluate(now, fx);
}

/// The action whose job has come back; the next one may start.
Action Stage::take_finished_action() {
  running_ = false;
  return cursor_.advance();
}

void Stage::handle(Ran<ForwardPass>&& m, double now, Effects& fx) {
  if (m.lane == Lane::mark) {
    finish_evaluation_batch(std::move(m.made), now, fx);
  } else {
    finish_action(std::move(m.made), now, fx);
  }
}

template <class T>
void Stage::finish_action(T&& made, double now, Effects& fx) {
  work_.finish(take_finished_action(), std::forward<T>(made), fx);
  start_actions(now, fx);
}

void Stage::handle(Ran<BackwardPass>&& m, double now, Effects& fx) {
  finish_action(std::move(m.made), now, fx);
}

void Stage::handle(Ran<InputGradient>&& m, double now, Effects& fx) {
  finish_action(std::move(m.made), now, fx);
}

void Stage::handle(Ran<WeightGradient>&& m, double now, Effects& fx) {
  finish_action(std::move(m.made), now, fx);
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
    for (auto& [to, bundle] : work_.to_next_chunks(chunk, std::move(made.y))) {
      MarkBatch next = batch;
      next.chunk = to;
      next.bundle = std::move(bundle);
      if (to % c_.schedule->width != part) {
        // Several parts of a chunk (pipeline.width) send their outputs; one of them sends the labels, too.
        next.labels = {};
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
  count_updates_due();
  if (auto& drawn = work_.drawn()) {
    drawn->end();
  }
  wait_.end(now, fx);  // what it waited for may be after the end and never come
  finish_after_last_update(fx);
  start_actions(now, fx);
}

/// Tells the source how many mini-batches have begun, where it cannot know: stages may be in front of it.
void Stage::handle(Halt, double now, Effects& fx) {
  if (auto& drawn = work_.drawn()) {
    wait_.end(now, fx);
    fx.send(c_.company.source, Halted{cursor_.action().chunk, 0, drawn->halt()});
  }
}

void Stage::skip(const Action& a, double now, Effects& fx) {
  work_.skip(a, now, fx);
  if (a.act == Act::update) {
    count_update(fx);
  }
}

void Stage::count_update(Effects& fx) {
  ++updates_;
  finish_after_last_update(fx);
}

/// An evaluation is over, or the run.
void Stage::handle(Release m, double now, Effects& fx) {
  if (!m.conclude) {
    work_.statistics().release(m.step);
    evaluations_.release(m.step);
    return;
  }
  if (c_.served) {  // the servers decide where the run ends, not the sequence
    wait_.end(now, fx);
    work_.stashes().record_count_max(fx);
  }
  work_.statistics().conclude(m.step, fx);
}

void Stage::finish_after_last_update(Effects& fx) {
  if (!finished_ && updates_ == updates_due_) {
    finished_ = true;
    work_.stashes().record_count_max(fx);
  }
}

void Stage::count_updates_due() {
  if (const auto end = cursor_.end()) {
    updates_due_ = c_.schedule->share_of(c_.stage, *end) * work_.statistics().chunks();
  }
}

void Stage::archive(Archive& a) {
  a(cursor_, work_, evaluations_, wait_, updates_, absent_, running_, finished_);
  count_updates_due();
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
