// Whom the Director hears to be lost, and who comes back.
#include "actors/run/director.hpp"
#include "actors/run/ending.hpp"
#include "messages/copies.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

/// Replicas that cannot go on without the machine `id`; empty: nobody can.
std::vector<std::int32_t> Director::depending_on(ActorId id) const {
  if (const auto group = c_.group_of.find(id); group != c_.group_of.end()) {
    return group->second;
  }
  // What an extension has added is everybody's.
  const std::int32_t replica = id < c_.replica_of.size() ? c_.replica_of[id] : -1;
  return replica < 0 ? std::vector<std::int32_t>{} : std::vector<std::int32_t>{replica};
}

void Director::handle(Down m, double, Effects& fx) {
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

}  // namespace troupe
