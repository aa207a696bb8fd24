#include "actors/director.hpp"

#include "actors/ending.hpp"
#include "messages/fields.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe {

Director::Director(Config config)
    : c_(std::move(config)),
      alive_(c_.company.sources.size(), true),
      since_(c_.company.sources.size(), 0),
      best_(c_.best) {
  for (const Company::Chain& chain : c_.company.chains) {
    copies_.emplace_back(chain.copies.size(), true);
  }
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
    if (c_.evaluate && !modules_away_.empty()) {
      finish(ending_of(modules_away_.begin()->second), fx);
    }
  }
  const Release m{step, conclude};
  c_.end->release(evaluator(), m, fx);
  for (const auto& stage : c_.company.stages.at(static_cast<std::size_t>(evaluator()))) {
    fx.send(stage, m);
  }
}

void Director::handle(Concluded m, double, Effects& fx) {
  TROUPE_CHECK(m.chunk >= 0 && m.chunk < c_.company.chunks,
               "the weights of chunk ",
               m.chunk,
               ", which there is none of");
  concluded_[{m.chunk, m.slice}] = std::move(m.weights);
  conclude(fx);
}

void Director::handle(Buffers m, double, Effects& fx) {
  TROUPE_CHECK(m.chunk >= 0 && m.chunk < c_.company.chunks,
               "the buffers of chunk ",
               m.chunk,
               ", which there is none of");
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

/// Replicas that cannot go on without the machine `id`; empty: nobody can.
std::vector<std::int32_t> Director::depending_on(ActorId id) const {
  if (const auto group = c_.group_of.find(id); group != c_.group_of.end()) {
    return group->second;
  }
  // What an extension has added is everybody's.
  const std::int32_t replica = id < c_.replica_of.size() ? c_.replica_of[id] : -1;
  return replica < 0 ? std::vector<std::int32_t>{} : std::vector<std::int32_t>{replica};
}

/// Whether what is lost is a copy of a server of which another one is left.
bool Director::survives_copy(const Down& m, Effects& fx) {
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    const Company::Chain& chain = c_.company.chains[i];
    for (std::size_t copy = 0; copy < chain.copies.size(); ++copy) {
      if (m.id != chain.copies[copy].id && m.id != chain.optimizers[copy]) {
        continue;
      }
      std::vector<bool>& alive = copies_[i];
      if (!alive[copy]) {
        return true;  // it goes with the other of its two machines
      }
      alive[copy] = false;
      const auto left = std::count(alive.begin(), alive.end(), true);
      if (left == 0) {
        return false;
      }
      fx.record(LossOfCopy{.chunk = chain.chunk,
                           .slice = chain.slice,
                           .copy = static_cast<std::int32_t>(copy),
                           .left = static_cast<std::int32_t>(left),
                           .cause = m.actor + ": " + m.cause});
      fx.send(chain.copies.front(), Succession{.epoch = ++epoch_, .alive = alive});
      return true;
    }
  }
  return false;
}

/// Whether what is down is of a decoupled module that will be there again. Once the final weights have been evaluated they
/// must not die.
bool Director::waits_for_module(const Down& m, Effects& fx) {
  if (!m.returns || (concluding_ && c_.evaluate)) {
    return false;
  }
  const std::int32_t module = c_.module_of.at(m.id);
  if (modules_away_.try_emplace(module, m).second) {
    fx.record(LossOfModule{.module = module, .cause = m.actor + ": " + m.cause});
  }
  return true;
}

void Director::module_returned(const Returned& m, Effects& fx) {
  for (const std::int32_t module : m.modules) {
    modules_away_.erase(module);
  }
  fx.send(c_.company.sources.front(), m);
  for (const std::int32_t module : m.modules) {
    const auto at = static_cast<std::size_t>(module);
    if (concluding_) {  // they have not heard of it
      fx.send(c_.company.shards.front().at(at), Release{*concluding_, true});
      fx.send(c_.company.stages.front().at(at), Release{*concluding_, true});
    }
  }
}

void Director::handle(Down m, double, Effects& fx) {
  if (survives_copy(m, fx) || waits_for_module(m, fx)) {
    return;
  }
  std::vector<std::int32_t> lost = depending_on(m.id);
  const std::int32_t first = lost.empty() ? -1 : lost.front();
  std::erase_if(lost, [&](std::int32_t r) { return !alive_[static_cast<std::size_t>(r)]; });
  if (first >= 0 && lost.empty()) {
    return;  // it is known to be dead, and its other machines go with it
  }
  const auto living = static_cast<std::size_t>(std::count(alive_.begin(), alive_.end(), true));
  if (lost.empty() || !c_.survives || living <= lost.size()) {
    Ending ending = ending_of(m);
    if (!lost.empty() && !c_.survives && c_.company.sources.size() > 1) {
      ending.cause += concat("; it is of replica ", first, ", and an all-reduce needs all of them");
    }
    finish(std::move(ending), fx);
    return;
  }
  const std::int32_t before = evaluator();
  for (const std::int32_t replica : lost) {
    alive_[static_cast<std::size_t>(replica)] = false;
    returning_.erase(replica);
    fx.record(LossOfReplica{.replica = replica, .cause = m.actor + ": " + m.cause});
  }
  c_.end->membership({.epoch = ++epoch_, .alive = alive_}, fx);
  if (before != evaluator()) {
    replace_evaluator(fx);
  }
  if (each_) {
    std::erase_if(each_->missing,
                  [&](std::int32_t r) { return !alive_[static_cast<std::size_t>(r)]; });
    end_evaluation_of_each(fx);
  }
  end_where_all_finished(fx);
}

/// What the dead one was asked for is asked of the next.
void Director::replace_evaluator(Effects& fx) {
  marking_ = false;
  buffers_.clear();
  if (c_.end->holder_has_weights()) {
    if (c_.keeps_best) {
      best_step_.reset();  // its weights have gone with the holder
      best_ = BestEvaluation(c_.best);
    }
    concluding_ = ended_at_ ? std::exchange(ended_at_, std::nullopt) : concluding_;
  }
  begin_mark(fx);
  if (!concluding_) {
    return;
  }
  const Release m{*concluding_, true};
  for (const auto& stage : c_.company.stages.at(static_cast<std::size_t>(evaluator()))) {
    fx.send(stage, m);
  }
  if (c_.end->holder_has_weights()) {
    concluded_.clear();
    c_.end->release(evaluator(), m, fx);
  }
}

// -- a replica that comes back ---------------------------------------------------------------------

void Director::handle(Returned m, double, Effects& fx) {
  if (!m.modules.empty()) {
    module_returned(m, fx);
    return;
  }
  const auto at = static_cast<std::size_t>(m.replica);
  if (concluding_ || alive_.at(at)) {
    return;
  }
  alive_[at] = true;
  since_[at] = ++epoch_;
  returning_[m.replica] = {.epoch = epoch_};
  c_.end->membership({.epoch = epoch_, .alive = alive_}, fx);
}

/// It begins behind all that any server has got of it before, and where the slowest is.
void Director::handle(Readmitted m, double, Effects& fx) {
  const auto found = returning_.find(m.replica);
  if (found == returning_.end() || found->second.epoch != m.epoch) {
    return;  // it has died again since
  }
  Returning& so_far = found->second;
  so_far.arrived = std::max(so_far.arrived, m.arrived);
  so_far.batch = std::max(so_far.batch, m.batch);
  if (++so_far.servers < c_.company.told().size()) {
    return;
  }
  const Rejoin rejoin{so_far.batch};
  fx.record(ReturnOfReplica{
      .replica = m.replica, .batch = so_far.batch, .missed = so_far.batch - so_far.arrived});
  returning_.erase(found);
  const auto at = static_cast<std::size_t>(m.replica);
  for (const auto& shard : c_.company.shards[at]) {
    fx.send(shard, rejoin);
  }
  for (const auto& stage : c_.company.stages[at]) {
    fx.send(stage, rejoin);
  }
  fx.send(c_.company.sources[at], rejoin);
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
  if (!modules_away_.empty()) {
    return "module " + std::to_string(modules_away_.begin()->first) + ", whose host has crashed";
  }
  if (each_) {
    return concat("evaluations of each replica's own weights at step ", each_->step);
  }
  return concluding_ ? "the weights of step " + std::to_string(*concluding_) : "the end of the run";
}

void Director::archive(Archive& a) {
  c_.end->archive(a);
  a(concluding_,
    concluded_,
    buffers_,
    alive_,
    epoch_,
    since_,
    returning_,
    modules_away_,
    marks_,
    marking_,
    each_,
    measured_,
    finished_,
    best_,
    best_step_,
    ended_at_,
    copies_);
}

}  // namespace troupe
