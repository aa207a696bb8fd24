// What is done about stale weights (pipeline.weights): each policy is a View and, for some, a change
// of the optimizer's step. Built-in ones and those of a program of one's own stand in one table.
#pragma once

#include "kernels/result.hpp"
#include "messages/proto.hpp"
#include "runtime/schemes/policies/view.hpp"
#include "runtime/schemes/registry.hpp"
#include "runtime/schemes/schedules/schedule.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace troupe {

struct OptimizerScheme;

/// What a policy is made from.
struct WeightContext {
  const proto::Experiment& experiment;  // resolved
  OptionValues values{};                // of pipeline.weights.custom
};

/// What a policy changes in the optimizer's step of a chunk.
struct PolicyStep {
  struct Mix {
    double velocity = 1;
    double gradient = 0;
  };

  /// With an optimizer that is heavy_ball: w -= eta (velocity v + gradient g) in place of w -= eta v.
  std::optional<Mix> mix{};
  /// What the learning rate is divided by at asynchronous update t = 0, 1, ... Empty: by 1.
  std::function<double(double t)> rate_divisor{};
  /// The optimizer keeps a smoothed displacement delta = D delta + (1 - D) (w_t - w_t-1), with this
  /// D, for ReachKind::displacement. 0: none.
  double displacement_decay = 0;
};

/// A weight policy as it is registered.
struct PolicyScheme {
  SchemeInfo info;
  std::string reads{};  // which weights forward and backward read, as formulas in b, d = K-1-k, k
  std::string staleness{};  // what remains
  std::string memory{};     // copies of a chunk's weights
  std::function<std::shared_ptr<const ViewPolicy>(const WeightContext&, const Schedule&)> view;

  /// Forward and backward read what is newest, whatever step that is: the only way to read weights
  /// that have no steps, those that hogwild shares.
  bool newest_only = false;
  /// All stages read the same step, so that the last one's gradients are as late as the first one's.
  bool uniform = false;
  /// It counts no updates, so that a module may leave some out, or make them of another mini-batch than the others do.
  bool uncounted = false;
  /// It looks ahead along the optimizer's direction (linear or geometric reaches), which a server
  /// whose step leads elsewhere cannot do.
  bool predicts = false;
  /// Who trains asynchronously and diverges is advised to try it.
  bool steadies = false;
  /// True of an optimizer that it goes with. Empty: it goes with all.
  std::function<bool(const OptimizerScheme&)> goes_with{};
  /// Of a chunk whose forwards are `delay` updates early. Not with servers that make the step. Empty:
  /// it leaves the step as it is.
  std::function<PolicyStep(const WeightContext&, std::int64_t delay)> step{};
  /// By how many updates at the present direction a linear reach of this horizon moves. Empty: by as
  /// many as the horizon has.
  std::function<double(const OptionValues&, std::int64_t horizon)> length{};
  /// Epochs at the start of which each mini-batch is flushed. Empty: 0.
  std::function<double(const WeightContext&)> synchronous_epochs{};
  /// Error (usage) with the reason where it does not go with this schedule.
  std::function<Result<void>(const WeightContext&, const Schedule&)> fits{};
};

/// Makes a policy known under its name, for pipeline.weights.custom. Before any experiment is checked.
/// Error (usage) where the name is taken or not in snake_case, or `view` is missing.
Result<void> register_policy(PolicyScheme scheme);

/// All of them, built in and registered.
const Registry<PolicyScheme>& policy_schemes();

/// "pipeline.weights=stash", or "pipeline.weights.custom.name=..." of a registered one.
std::string weights_assignment(const PolicyScheme& scheme);

/// The one that the experiment has chosen. Error (usage) where that has not been registered, or an
/// option of it is wrong.
Result<const PolicyScheme*> chosen_weights(const proto::Experiment& experiment);

/// What the chosen policy is made from. The experiment outlives it.
WeightContext weight_context(const proto::Experiment& experiment);

/// The chosen policy. ContractError where there is none.
std::shared_ptr<const ViewPolicy> make_view(const proto::Experiment& experiment,
                                            const Schedule& schedule);

/// Of the chosen policy; 0 where it has none.
double synchronous_epochs(const proto::Experiment& experiment);

/// Error (usage) with the reason where the policy is not registered, or makes no sense with the
/// optimizer or the rest of the experiment, whatever the schedule.
Result<void> check_weights(const proto::Experiment& experiment);

/// The same, and with this schedule.
Result<void> check_policy(const proto::Experiment& experiment, const Schedule& schedule);

/// "use one of: latest, stash": the policies of which `is_right`.
std::string use_weights(const std::function<bool(const PolicyScheme&)>& is_right);

}  // namespace troupe
