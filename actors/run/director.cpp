#include "actors/run/director.hpp"

#include "actors/run/ending.hpp"
#include "kernels/wording.hpp"
#include "messages/archive.hpp"
#include "messages/archive_sized.hpp"

#include <algorithm>
#include <iterator>

namespace troupe {

Director::Director(Config config)
    : c_(std::move(config)),
      alive_(c_.company.sources.size(), true),
      since_(c_.company.sources.size(), 0),
      best_(c_.best) {
  if (!c_.end) {
    c_.end = std::make_unique<EndAtSource>(c_.company);
  }
}

/// The living replica that has been there longest, the first of them: one that comes back takes over from
/// nobody.
std::int32_t Director::evaluator() const {
  std::size_t first = alive_.size();
  for (std::size_t r = 0; r < alive_.size(); ++r) {
    if (alive_[r] && (first == alive_.size() || since_[r] < since_[first])) {
      first = r;
    }
  }
  return static_cast<std::int32_t>(first);
}

void Director::handle(End m, double, Effects& fx) {
  if (c_.end->heeds_source() && !c_.evaluate && (!concluding_ || m.batches < *concluding_)) {
    release(m.batches, true, fx);
  }
}

// -- evaluations -----------------------------------------------------------------------------------

void Director::handle(MarkDue m, double, Effects& fx) {
  if (!c_.end->news(m)) {
    return;
  }
  announce(m, fx);
}

void Director::announce(const MarkDue& m, Effects& fx) {
  if (m.last && m.step == measured_) {
    if (each_) {
      each_->ends = true;
    } else if (c_.each == EachReplica::at_end) {
      evaluate_each(m.step, true, fx);
    } else {
      conclude_at_best(m.step, fx);
    }
    return;
  }
  if (!c_.evaluate) {
    release(m.step, m.last, fx);
    return;
  }
  pass_over(c_.end->queue(marks_, m), fx);
  begin_mark(fx);
}

void Director::begin_mark(Effects& fx) {
  if (!marking_ && !each_ && !marks_.empty()) {
    marking_ = true;
    fx.send(c_.company.sources.at(static_cast<std::size_t>(evaluator())), marks_.front());
  }
}

void Director::handle(MarkDone m, double, Effects& fx) {
  if (m.own) {
    evaluated_own(m, fx);
    return;
  }
  if (c_.end->announces()) {
    if (m.replica != evaluator() || marks_.empty() || m.step != marks_.front().step) {
      return;  // of a replica that was given up
    }
    measured_ = m.step;
    m.last = marks_.front().last;
    marks_.pop_front();
    marking_ = false;
  }
  EvaluationRecord record{.step = m.step,
                          .loss = m.loss,
                          .accuracy = m.accuracy,
                          .has_accuracy = m.has_accuracy,
                          .samples = m.samples};
  const bool judges = !concluding_;
  record.better = judges && best_.see(record);
  record.patience_ended = judges && !m.last && best_.exhausted();
  fx.record(record);
  if (judges) {
    judged(m, record.better, fx);
  }
  if (c_.end->announces()) {
    begin_mark(fx);
  }
}

/// The run ends here, or goes on; what is pinned for its end stays.
void Director::judged(const MarkDone& m, bool better, Effects& fx) {
  const bool over =
      (c_.target_accuracy > 0 && m.accuracy >= c_.target_accuracy) || best_.exhausted();
  if (over && !m.last) {
    c_.end->target_met(alive_, fx);
  }
  if (c_.keeps_best && better) {
    const auto before = std::exchange(best_step_, m.step);
    if (before && *before != m.step) {
      release(*before, false, fx);
    }
  }
  const bool ends = over || m.last;
  if (c_.each == EachReplica::always || (c_.each == EachReplica::at_end && ends)) {
    evaluate_each(m.step, ends, fx);
  } else {
    evaluated(m.step, ends, fx);
  }
}

void Director::evaluated(std::int64_t step, bool ends, Effects& fx) {
  if (ends) {
    conclude_at_best(step, fx);
  } else if (best_step_ != step) {
    release(step, false, fx);
  }
}

/// At `step`, or with what the best evaluation before it has pinned.
void Director::conclude_at_best(std::int64_t step, Effects& fx) {
  if (best_step_ && *best_step_ != step) {
    ended_at_ = step;
  }
  release(best_step_.value_or(step), true, fx);
}

// -- the end ---------------------------------------------------------------------------------------

void Director::handle(Halt, double, Effects& fx) {
  c_.end->halt(alive_, fx);
}

void Director::handle(Halted m, double, Effects& fx) {
  c_.end->halted(m, fx);
}

void Director::handle(Finished m, double, Effects& fx) {
  c_.end->finished(m);
  end_where_all_finished(fx);
}

void Director::end_where_all_finished(Effects& fx) {
  if (concluding_) {
    return;
  }
  if (const auto last = c_.end->all_finished(alive_)) {
    announce({.step = *last, .last = true}, fx);
  }
}

void Director::release(std::int64_t step, bool conclude, Effects& fx) {
  if (conclude) {
    concluding_ = step;
  }
  const Release m{step, conclude};
  c_.end->release(evaluator(), m, fx);
  for (const auto& stage : c_.company.stages.at(static_cast<std::size_t>(evaluator()))) {
    fx.send(stage, m);
  }
}

void Director::handle(Concluded m, double, Effects& fx) {
  TROUPE_CHECK(m.chunk >= 0 && m.chunk < c_.company.chunks,
               fill_in("the weights of chunk {}, which does not exist", m.chunk));
  concluded_[{m.chunk, m.slice}] = std::move(m.weights);
  conclude(fx);
}

void Director::handle(Buffers m, double, Effects& fx) {
  TROUPE_CHECK(m.chunk >= 0 && m.chunk < c_.company.chunks,
               fill_in("the buffers of chunk {}, which does not exist", m.chunk));
  if (m.replica == evaluator()) {
    buffers_[m.chunk] = std::move(m.tensors);
    conclude(fx);
  }
}

void Director::conclude(Effects& fx) {
  const std::int32_t chunks = c_.company.chunks;
  if (concluded_.size() < c_.end->parts() || static_cast<std::int32_t>(buffers_.size()) < chunks) {
    return;
  }
  Ending ending;
  ending.step = ended_at_.value_or(*concluding_);
  if (ended_at_) {
    ending.best = *concluding_;
  }
  ending.weights.resize(static_cast<std::size_t>(chunks));
  for (auto& [part, weights] : concluded_) {
    Weights& chunk = ending.weights[static_cast<std::size_t>(part.first)];
    std::move(weights.begin(), weights.end(), std::back_inserter(chunk));
  }
  for (auto& [chunk, tensors] : buffers_) {
    ending.buffers.push_back(std::move(tensors));
  }
  finish(std::move(ending), fx);
}

void Director::handle(Diverged m, double, Effects& fx) {
  finish(ending_of(m, c_.allow_divergence), fx);
}

void Director::finish(Ending ending, Effects& fx) {
  if (!std::exchange(finished_, true)) {
    fx.finish(std::move(ending));
  }
}

std::string Director::waits_for() const {
  if (finished_) {
    return "";
  }
  if (each_) {
    return concat("evaluations of each replica's own weights at step ", each_->step);
  }
  return concluding_ ? "the weights of step " + std::to_string(*concluding_) : "the end of the run";
}

void Director::archive(Archive& a) {
  c_.end->archive(a);
  archive_sized(a, alive_, since_);
  a(concluding_,
    concluded_,
    buffers_,
    epoch_,
    returning_,
    marks_,
    marking_,
    each_,
    measured_,
    finished_,
    best_,
    best_step_,
    ended_at_);
  const auto is_chunk = [this](std::int32_t chunk) {
    return chunk >= 0 && chunk < c_.company.chunks;
  };
  for (const auto& [part, weights] : concluded_) {
    expect_archived(is_chunk(part.first), "the state has weights of a chunk that does not exist");
  }
  for (const auto& [chunk, tensors] : buffers_) {
    expect_archived(is_chunk(chunk), "the state has buffers of a chunk that does not exist");
  }
  expect_archived(!marking_ || !marks_.empty() || each_,
                  "the state has an evaluation under way that does not exist");
}

}  // namespace troupe
