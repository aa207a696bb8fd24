#include "runtime/schemes/view.hpp"

#include <algorithm>
#include <set>

namespace troupe {
namespace {

Reach reach(ReachKind kind, std::int64_t horizon) {
  return horizon == 0 ? Reach{} : Reach{kind, static_cast<std::int32_t>(horizon)};
}

}  // namespace

View ViewPolicy::forward(const Action& a) const {
  switch (kind_) {
    case ViewKind::latest:
    case ViewKind::stash:
    case ViewKind::pipemare:
      return {a.natural, {}};
    case ViewKind::uniform:
      return {std::max<std::int64_t>(0, a.batch - delay_max_), {}};
    case ViewKind::spectrain:
    case ViewKind::pipeoptim:
      return {a.natural, reach(ReachKind::linear, a.distance())};
    case ViewKind::spectrain_paper:
      // s = floor(k/2) + N - k - 1 in steady state; min(b, d) stands for N - k - 1 so that start-up
      // does not over-predict.
      return {a.natural, reach(ReachKind::linear, a.distance() + a.chunk / 2)};
    case ViewKind::nwpt:
      return {a.natural, reach(ReachKind::geometric, 1)};
    case ViewKind::geometric:
      return {a.natural, reach(ReachKind::geometric, a.distance())};
    case ViewKind::xpipe:
      return {a.first_natural, reach(ReachKind::linear, a.batch - a.first_natural)};
  }
  return {};
}

bool ViewPolicy::stashes() const {
  switch (kind_) {
    case ViewKind::stash:
    case ViewKind::uniform:
    case ViewKind::spectrain:
    case ViewKind::nwpt:
    case ViewKind::geometric:
      return true;
    default:
      return false;
  }
}

std::optional<View> ViewPolicy::backward(const Action& a, std::int64_t forward_natural) const {
  switch (kind_) {
    case ViewKind::latest:
    case ViewKind::xpipe:
    case ViewKind::pipeoptim:
      return View{a.natural, {}};
    case ViewKind::spectrain_paper:
      return View{a.natural, reach(ReachKind::linear, a.chunk / 2)};
    case ViewKind::pipemare:
      return View{a.natural, reach(ReachKind::displacement, forward_natural - a.natural)};
    default:
      return std::nullopt;
  }
}

ViewPlan plan_views(const Schedule& schedule, const ViewPolicy& policy, std::int32_t chunk) {
  const Sequence& sequence = schedule.stages[static_cast<std::size_t>(schedule.stage_of(chunk))];
  // Views reach back at most delay_max steps, so after the prologue and so many periods (and two to
  // spare) every reader of the middle step has been seen.
  const std::int64_t periods = 2 * schedule.delay_max + 4;
  const std::uint64_t length =
      sequence.prologue.size() + sequence.period.size() * static_cast<std::uint64_t>(periods);
  ViewPlan plan;
  std::map<std::int64_t, std::set<Reach>> due;
  std::map<std::pair<std::int64_t, std::int32_t>, std::int64_t> forward_natural;
  std::int64_t updates = 0;
  const auto see = [&](const Action& a, const View& view) {
    plan.keep = std::max(plan.keep, 1 + a.natural - view.step);
    if (view.reach.kind != ReachKind::none) {
      due[view.step].insert(view.reach);
    }
  };
  for (std::uint64_t i = 0; i < length; ++i) {
    const Action a = sequence.at(i);
    if (a.chunk != chunk) {
      continue;
    }
    if (a.act == Act::forward) {
      see(a, policy.forward(a));
      forward_natural[{a.batch, a.micro_batch}] = a.natural;
    } else if (a.act == Act::backward || a.act == Act::input_gradient) {
      if (const auto view = policy.backward(a, forward_natural.at({a.batch, a.micro_batch}))) {
        see(a, *view);
      }
    } else if (a.act == Act::update) {
      ++updates;
    }
  }
  const std::int64_t settled = std::max<std::int64_t>(0, updates - schedule.delay_max - 2);
  for (std::int64_t step = 0; step < settled; ++step) {
    plan.early.emplace_back(due[step].begin(), due[step].end());
  }
  plan.steady.assign(due[settled].begin(), due[settled].end());
  return plan;
}

}  // namespace troupe
