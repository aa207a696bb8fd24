// At which weights: a View policy answers for every forward and backward which step is read and how
// far it is moved. Pure arithmetic on the sequence; what a shard must keep and predict is computed
// from it before the run.
#pragma once

#include "messages/stamp.hpp"
#include "runtime/schemes/schedule.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// Which weights the policies of pipeline.weights read. Several policies share one and differ in
/// their optimizer.
enum class ViewKind : std::uint8_t {
  latest,     // forward and backward at the natural step
  stash,      // backward at what its forward read
  uniform,    // the step max(0, b - D) on every stage, D the schedule's greatest delay; stashed
  spectrain,  // natural step, linear reach = distance; stashed
  spectrain_paper,  // reaches distance + floor(c / 2) and floor(c / 2), predicted twice; c the
                    // chunk
  nwpt,             // natural step, geometric reach 1; stashed
  geometric,        // natural step, geometric reach = distance; stashed
  xpipe,  // the first micro-batch's view for all of the mini-batch; backward at the natural step
  pipeoptim,  // natural step, linear reach = distance; backward at the natural step
  pipemare,   // natural step; backward reconstructs the forward's weights along the displacement
};

class ViewPolicy {
 public:
  ViewPolicy(ViewKind kind, std::int64_t delay_max) : kind_(kind), delay_max_(delay_max) {}

  View forward(const Action& action) const;

  /// True where the backward uses the very weights that its forward read.
  bool stashes() const;

  /// The view of the action's backward; nothing where it uses what the forward read. `action` is
  /// the backward (or input gradient); `forward_natural` is the natural step of its forward.
  std::optional<View> backward(const Action& action, std::int64_t forward_natural) const;

 private:
  ViewKind kind_;
  std::int64_t delay_max_;
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

ViewPlan plan_views(const Schedule& schedule, const ViewPolicy& policy, std::int32_t chunk);

}  // namespace troupe
