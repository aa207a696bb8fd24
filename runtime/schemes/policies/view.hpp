// At which weights: a View policy answers for every forward and backward which step is read and how
// far it is moved. Pure arithmetic on the sequence; what a shard must keep and predict is computed
// from it before the run.
#pragma once

#include "kernels/result.hpp"
#include "messages/stamp.hpp"
#include "runtime/schemes/schedules/schedule.hpp"

#include <optional>
#include <vector>

namespace troupe {

/// `horizon` updates along `kind`; the slice itself where that is none.
constexpr Reach reach_of(ReachKind kind, std::int64_t horizon) {
  return horizon == 0 ? Reach{} : Reach{kind, static_cast<std::int32_t>(horizon)};
}

/// Which weights a policy of pipeline.weights reads. What it answers may depend on the action alone,
/// and once the pipe is full a mini-batch must read as the one before it did, one step later: what
/// shards keep and predict is found by asking it about the first mini-batches. Used by all stages at
/// once.
class ViewPolicy {
 public:
  virtual ~ViewPolicy() = default;

  /// The step is the action's natural one or an older one.
  virtual View forward(const Action& action) const = 0;

  /// True where the backward uses the very weights that its forward read; the stage keeps them.
  virtual bool stashes() const { return true; }

  /// Nothing where the policy stashes. `action` is the backward (or input gradient);
  /// `forward_natural` is the natural step of its forward.
  std::optional<View> backward(const Action& action, std::int64_t forward_natural) const {
    return stashes() ? std::nullopt : std::optional(unstashed(action, forward_natural));
  }

 protected:
  /// The view of a backward where the policy does not stash. By default the newest weights.
  virtual View unstashed(const Action& action, std::int64_t /*forward_natural*/) const {
    return {action.natural, {}};
  }
};

/// What the shard of one chunk must keep: computed by walking the sequence with the policy.
struct ViewPlan {
  std::int64_t keep = 1;  // newest steps

  /// Reaches due at `step`, to be made in the pass that creates it.
  const std::vector<Reach>& reaches(std::int64_t step) const {
    return step < static_cast<std::int64_t>(early.size()) ? early[static_cast<std::size_t>(step)]
                                                          : steady;
  }

  std::vector<std::vector<Reach>> early;  // by step, until the steady state
  std::vector<Reach> steady;
};

/// Error (usage) where the policy names a step that is not there when it is read: one before the
/// first, or one that the action itself has to make.
Result<ViewPlan> plan_views(const Schedule& schedule, const ViewPolicy& policy, std::int32_t chunk);

}  // namespace troupe
