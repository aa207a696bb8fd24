// What an experiment has chosen in `replicas`, as the checks look at it. Private to runtime/schemes.
#pragma once

#include "experiment/optimizer.pb.h"
#include "experiment/replicas.pb.h"
#include "messages/experiment.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/constraint.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"
#include "runtime/schemes/optimizers/optimizer_scheme.hpp"
#include "runtime/schemes/policies/policy.hpp"

#include <string>

namespace troupe::replica_checks {

/// The names that an experiment has chosen; a part that is by_rule has the rule's. Expects an exchange
/// and a weight policy that have been registered.
struct Chosen {
  explicit Chosen(const proto::Experiment& e)
      : experiment(e),
        replicas(sections::replicas(e)),
        server(replicas.exchange().parameter_server()),
        exchange(exchange_of(e)),
        rule(choice_name(replicas.rule())),
        admit(part(choice_name(replicas.admit()))),
        scale(part(choice_name(replicas.scale()))),
        step(part(choice_name(replicas.step()))),
        optimizer(optimizer_scheme(sections::optimizer(e))),
        policy(**chosen_weights(e)) {}

  const RuleScheme& rule_scheme() const { return rule_of(replicas); }

  const RuleScheme& admission() const { return admission_of(replicas); }

  const RuleScheme& scaling() const { return scale_of(replicas); }

  const RuleScheme& stepping() const { return step_of(replicas); }

  Travel travel() const {
    Link link;
    if (rule_scheme().link) {
      rule_scheme().link(link, experiment);
    }
    return link.travel;
  }

  /// Pushes are changes, not gradients.
  bool additive() const { return travel() != Travel::gradient; }

  const proto::Experiment& experiment;
  const proto::Replicas& replicas;
  const proto::ParameterServer& server;
  const ExchangeScheme& exchange;
  std::string rule;
  std::string admit;
  std::string scale;
  std::string step;
  const OptimizerScheme& optimizer;
  const PolicyScheme& policy;

 private:
  std::string part(const std::string& name) const {
    return name.empty() || name == "by_rule" ? rule : name;
  }
};

/// Of exchanges whose server asks a rule: whether rule, parts, optimizer, pipeline and traffic go together.
Result<void> check_rule(const Chosen& chosen);

}  // namespace troupe::replica_checks
