#include "runtime/schemes/policies/policy.hpp"

#include "experiment/optimizer.pb.h"
#include "experiment/pipeline.pb.h"
#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/decoupled/decoupled.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"
#include "runtime/schemes/optimizers/optimizer_scheme.hpp"
#include "runtime/schemes/policies/built_in.hpp"

#include <algorithm>

namespace troupe {
namespace {

constexpr const char* kKey = "pipeline.weights";

Registry<PolicyScheme>& registry() {
  static Registry<PolicyScheme> table(policies::built_in());
  return table;
}

Result<void> check_optimizer(const PolicyScheme& scheme, const OptimizerScheme& optimizer) {
  if (!scheme.goes_with || scheme.goes_with(optimizer)) {
    return {};
  }
  std::vector<std::string> right;
  for (const OptimizerScheme& one : optimizer_schemes()) {
    if (scheme.goes_with(one)) {
      right.push_back(one.info.name);
    }
  }
  const std::string others = use_weights([&](const PolicyScheme& other) {
    return other.predicts == scheme.predicts && !other.goes_with;
  });
  return usage_error(
      "{}: {} goes with optimizer.rule {}; it is {}. Of the policies that go with every rule {}",
      kKey,
      scheme.info.name,
      joined(right, ", "),
      optimizer.info.name,
      others);
}

/// A step of its own is one of heavy-ball momentum.
Result<void> check_mix(const PolicyScheme& scheme,
                       const proto::Experiment& experiment,
                       std::int64_t delay) {
  const OptimizerScheme& optimizer = optimizer_scheme(sections::optimizer(experiment));
  if (!scheme.step || optimizer.heavy_ball || !scheme.step(weight_context(experiment), delay).mix) {
    return {};
  }
  return usage_error(
      "{}: {} mixes velocity and gradient as only optimizer.rule momentum has them; it is {}",
      kKey,
      scheme.info.name,
      optimizer.info.name);
}

/// It changes the step, so that who predicts steps, or changes them itself, would be wrong.
Result<void> check_error_feedback(const PolicyScheme& scheme,
                                  const proto::Experiment& experiment,
                                  std::int64_t delay_max) {
  if (sections::pipeline(experiment).error_feedback() == 0) {
    return {};
  }
  const auto refused = [](const std::string& why) {
    return Error{ErrorKind::usage, "pipeline.error_feedback: " + why};
  };
  if (delay_max == 0) {
    return refused(
        "corrects updates by late gradients, and with this schedule none is late; use 0");
  }
  if (sections::replica_count(experiment) > 1 || has_servers(experiment)) {
    return refused("is for one replica without a server; use 0");
  }
  const DecoupledScheme* const decoupled = decoupled_of(experiment);
  if (scheme.uniform && decoupled && decoupled->predictor) {
    return refused(
        fill_in("is for late gradients, and those of predictors are none, which {} {} does not "
                "tell apart; use 0",
                kKey,
                scheme.info.name));
  }
  if (scheme.predicts || scheme.step) {
    return refused(
        fill_in("changes the step, which {} {}{}{}",
                kKey,
                scheme.info.name,
                scheme.step ? " changes, too: " : " predicts: ",
                use_weights([](const PolicyScheme& s) { return !s.predicts && !s.step; })));
  }
  return {};
}

const PolicyScheme& chosen(const proto::Experiment& experiment) {
  const auto scheme = chosen_weights(experiment);
  TROUPE_CHECK(scheme, scheme ? "" : scheme.error().message);
  return **scheme;
}

}  // namespace

Result<void> register_policy(PolicyScheme scheme) {
  if (!scheme.view) {
    return usage_error("register_policy: {} has no view, which says what weights it reads",
                       scheme.info.name);
  }
  return registry().add(std::move(scheme), "register_policy");
}

const Registry<PolicyScheme>& policy_schemes() {
  return registry();
}

std::string weights_assignment(const PolicyScheme& scheme) {
  return concat(kKey, registry().built_in(scheme) ? "=" : ".custom.name=", scheme.info.name);
}

Result<const PolicyScheme*> chosen_weights(const proto::Experiment& experiment) {
  const proto::WeightPolicy& weights = sections::pipeline(experiment).weights();
  if (weights.has_custom()) {
    return registry().chosen(weights.custom(), kKey);
  }
  const std::string name = choice_name(weights);
  const PolicyScheme* const scheme = registry().find(name.empty() ? "latest" : name);
  TROUPE_CHECK(scheme, "no weight policy '", name, "'");
  return scheme;
}

WeightContext weight_context(const proto::Experiment& experiment) {
  return {experiment,
          OptionValues(chosen(experiment).info.options,
                       sections::pipeline(experiment).weights().custom())};
}

std::shared_ptr<const ViewPolicy> make_view(const proto::Experiment& experiment,
                                            const Schedule& schedule) {
  return chosen(experiment).view(weight_context(experiment), schedule);
}

double synchronous_epochs(const proto::Experiment& experiment) {
  const PolicyScheme& scheme = chosen(experiment);
  return scheme.synchronous_epochs ? scheme.synchronous_epochs(weight_context(experiment)) : 0;
}

Result<void> check_weights(const proto::Experiment& experiment) {
  const auto known = chosen_weights(experiment);
  TROUPE_TRY(known);
  const PolicyScheme& scheme = **known;
  if (scheme.info.check) {
    TROUPE_TRY(scheme.info.check(experiment));
  }
  TROUPE_TRY(check_optimizer(scheme, optimizer_scheme(sections::optimizer(experiment))));
  return {};
}

Result<void> check_policy(const proto::Experiment& experiment, const Schedule& schedule) {
  TROUPE_TRY(check_weights(experiment));
  const PolicyScheme& scheme = chosen(experiment);
  TROUPE_TRY(check_error_feedback(scheme, experiment, schedule.delay_max));
  if (scheme.fits) {
    TROUPE_TRY(scheme.fits(weight_context(experiment), schedule));
  }
  return check_mix(scheme, experiment, schedule.delay_max);
}

std::string use_weights(const std::function<bool(const PolicyScheme&)>& is_right) {
  std::vector<std::string> names;
  for (const PolicyScheme& scheme : policy_schemes()) {
    if (is_right(scheme)) {
      names.push_back(scheme.info.name);
    }
  }
  return "use one of: " + joined(names, ", ");
}

}  // namespace troupe
