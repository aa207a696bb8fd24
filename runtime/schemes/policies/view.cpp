#include "runtime/schemes/policies/view.hpp"

#include "kernels/wording.hpp"

#include <deque>

namespace troupe {
namespace {

/// Collects what the views of one chunk ask for.
class Planner {
 public:
  explicit Planner(const ViewPolicy& policy) : policy_(policy) {}

  /// False where the action's view names a step that is not there; `wrong` has the sentence.
  bool see(const Action& a) {
    switch (a.act) {
      case Act::forward:
        naturals_.push_back(a.natural);
        return read(a, policy_.forward(a));
      case Act::backward:
      case Act::input_gradient: {
        const std::int64_t natural = naturals_.front();  // backwards come in the forwards' order
        naturals_.pop_front();
        const auto view = policy_.backward(a, natural);
        return !view || read(a, *view);
      }
      case Act::weight_gradient:
        return true;
      case Act::update:
        ++updates_;
        return true;
    }
    return true;
  }

  /// `delay`: the greatest of the schedule. Steps of the last updates have not met all their readers.
  ViewPlan plan(std::int64_t delay) {
    const auto settled = static_cast<std::size_t>(std::max<std::int64_t>(0, updates_ - delay - 2));
    due_.resize(std::max(due_.size(), settled + 1));
    ViewPlan plan{.keep = keep_, .early = {}, .steady = due_[settled]};
    due_.resize(settled);
    while (!due_.empty() && due_.back() == plan.steady) {
      due_.pop_back();
    }
    plan.early = std::move(due_);
    return plan;
  }

  std::string wrong;

 private:
  bool read(const Action& a, const View& view) {
    if (view.step < 0 || view.step > a.natural) {
      wrong = fill_in(
          "pipeline.weights: the policy reads step {} at {}, where there are the steps 0 to {}",
          view.step,
          to_string(a),
          a.natural);
      return false;
    }
    keep_ = std::max(keep_, 1 + a.natural - view.step);
    if (view.reach.kind != ReachKind::none) {
      add(static_cast<std::size_t>(view.step), view.reach);
    }
    return true;
  }

  void add(std::size_t step, const Reach& reach) {
    due_.resize(std::max(due_.size(), step + 1));
    const auto at = std::lower_bound(due_[step].begin(), due_[step].end(), reach);
    if (at == due_[step].end() || *at != reach) {
      due_[step].insert(at, reach);
    }
  }

  const ViewPolicy& policy_;
  std::int64_t keep_ = 1;
  std::int64_t updates_ = 0;
  std::vector<std::vector<Reach>> due_;  // by step, in order
  std::deque<std::int64_t> naturals_;    // of forwards whose backwards have not come
};

}  // namespace

Result<ViewPlan> plan_views(const Schedule& schedule,
                            const ViewPolicy& policy,
                            std::int32_t chunk) {
  const Sequence& sequence = schedule.stages[static_cast<std::size_t>(schedule.stage_of(chunk))];
  // Views reach back at most delay_max steps, so after the prologue and so many periods (and two to
  // spare) every reader of the middle step has been seen.
  const std::int64_t periods = 2 * schedule.delay_max + 4;
  const std::uint64_t length =
      sequence.prologue.size() + sequence.period.size() * static_cast<std::uint64_t>(periods);
  Planner planner(policy);
  for (std::uint64_t i = 0; i < length; ++i) {
    if (const Action a = sequence.at(i); a.chunk == chunk && !planner.see(a)) {
      return Error{ErrorKind::usage, planner.wrong};
    }
  }
  return planner.plan(schedule.delay_max);
}

}  // namespace troupe
