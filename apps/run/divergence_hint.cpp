#include "apps/run/divergence_hint.hpp"

#include "apps/cli/text.hpp"
#include "experiment.pb.h"
#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"
#include "runtime/schemes/policies/policy.hpp"
#include "runtime/schemes/schedules/schedule_scheme.hpp"

#include <vector>

namespace troupe {
namespace {

/// Whether the experiment could have these values, and has others.
bool could_have(const proto::Experiment& experiment, const std::vector<std::string>& assignments) {
  proto::Experiment other = experiment;
  for (const std::string& assignment : assignments) {
    if (!set_value(other, assignment)) {
      return false;
    }
  }
  return resolve(other) && check_replicas(other) &&
         print_experiment(other) != print_experiment(experiment);
}

/// Of a parameter server: rules that bear late gradients better, or else fewer of them.
std::vector<std::string> gentler_rules(const proto::Experiment& experiment) {
  const proto::Replicas& replicas = experiment.replicas();
  if (choice_name(replicas.rule()).starts_with("dana")) {  // bears momentum already
    std::vector<std::string> cures{"fewer replicas"};
    if (could_have(experiment, {"replicas.rule=dana_zero", "replicas.scale=gap_aware"})) {
      cures.emplace_back("replicas.rule=dana_zero with replicas.scale=gap_aware");
    }
    return cures;
  }
  std::vector<std::string> rules;
  for (const std::string rule : {"dana_slim", "staleness_aware", "gap_aware"}) {
    if (rule != choice_name(replicas.scale()) &&
        could_have(experiment, {"replicas.rule=" + rule})) {
      rules.push_back(rule);
    }
  }
  return {rules.empty() ? "fewer replicas" : "replicas.rule=" + listed(rules, " or ")};
}

/// Whether stages work at weights of different ages.
bool has_stale_stages(const proto::Experiment& experiment) {
  const auto schedule = chosen_schedule(experiment);
  return experiment.pipeline().stages() > 1 && schedule && !(*schedule)->flushed;
}

}  // namespace

std::string divergence_hint(const proto::Experiment& experiment, const std::string& staleness) {
  const std::string end = "; stop.allow_divergence=true makes this an ordinary end";
  const proto::Replicas& replicas = experiment.replicas();
  const ExchangeScheme& exchange = exchange_of(experiment);
  if (shared_by(experiment) == Shared::own) {
    return "hint: " + exchange.info.name +
           " takes no step to where the training loss is not finite, so look at "
           "what it began with: the data, and start_from or seed" +
           end;
  }
  if (replicas.count() == 1) {
    std::vector<std::string> cures{"a smaller optimizer.learning_rate", "some optimizer.warm_up"};
    if (has_stale_stages(experiment)) {
      for (const PolicyScheme& policy : policy_schemes()) {
        if (policy.steadies && could_have(experiment, {weights_assignment(policy)})) {
          cures.push_back(weights_assignment(policy));
        }
      }
    }
    return "hint: " + listed(cures, " or ") + end;
  }
  const std::string rate = concat("an optimizer.learning_rate below ",
                                  number(experiment.optimizer().learning_rate(), "%.3g"));
  if (exchange.ruled) {
    std::vector<std::string> cures{
        rate + " (with momentum what is stable falls with the staleness)",
        "optimizer.warm_up over about an epoch of updates"};
    for (const std::string& rule : gentler_rules(experiment)) {
      cures.push_back(rule);
    }
    return concat(
        "hint: gradients were late, staleness ", staleness, ": try ", listed(cures, " or "), end);
  }
  std::vector<std::string> cures{rate, "some optimizer.warm_up"};
  if (const std::string of_exchange = exchange.remedy ? exchange.remedy(experiment) : "";
      !of_exchange.empty()) {
    cures.push_back(of_exchange);
  }
  return fill_in("hint: {} replicas by exchange {}: try {}{}",
                 replicas.count(),
                 exchange.info.name,
                 listed(cures, " or "),
                 end);
}

}  // namespace troupe
