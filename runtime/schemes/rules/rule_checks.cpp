// Checks of exchanges whose server asks a rule: what goes together of rule, parts, optimizer, pipeline and
// traffic. They look at the facts that schemes tell of themselves.
#include "experiment/optimizer.pb.h"
#include "experiment/replicas.pb.h"
#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/codecs/codec.hpp"
#include "runtime/schemes/exchanges/exchange_checks.hpp"
#include "runtime/schemes/exchanges/replica_checks.hpp"

#include <algorithm>
#include <string>

namespace troupe::replica_checks {
namespace {

Result<void> check_known(const Chosen& c) {
  if (c.replicas.rule().has_custom()) {
    TROUPE_TRY(rules().chosen(c.replicas.rule().custom(), "replicas.rule"));
  }
  return {};
}

/// What the schemes of the parts themselves have against the experiment.
Result<void> check_parts(const Chosen& c) {
  for (const RuleScheme* part : {&c.rule_scheme(), &c.admission(), &c.scaling(), &c.stepping()}) {
    if (part->info.check) {
      TROUPE_TRY(part->info.check(c.experiment));
    }
  }
  return {};
}

/// Parts of rules whose replicas push changes of the weights.
Result<void> check_parts_of_changes(const Chosen& c) {
  const RuleScheme& rule = c.rule_scheme();
  if (!c.additive()) {
    return {};
  }
  if (c.scaling().scale && &c.scaling() != &rule) {
    return usage_error(
        "replicas.scale: {} is for gradients; with replicas.rule {} a push is a change of the "
        "weights, which is added as it is: use none",
        c.scale,
        c.rule);
  }
  if (&c.stepping() != &rule) {
    return usage_error(
        "replicas.step: {} is for gradients; with replicas.rule {} a push is a change of the "
        "weights: leave it by_rule",
        c.step,
        c.rule);
  }
  const bool any_order = rule.any_admission && c.admission().applies_each;
  if (&c.admission() != &rule && !any_order) {
    return usage_error("replicas.admit: {} does not go with replicas.rule {}{}",
                       c.admit,
                       c.rule,
                       rule.any_admission ? ", whose replicas count on each of their changes being "
                                            "added: use by_rule, asgd or delayed"
                                          : ", which is defined by who waits: leave it by_rule");
  }
  return {};
}

Result<void> check_one_at_a_time(const Chosen& c) {
  if (!c.stepping().one_at_a_time || !c.admission().pushes) {
    return {};
  }
  return usage_error(
      "replicas.admit: {} makes one update of several gradients, and the step {} takes one at a "
      "time; use asgd, ringmaster or delayed",
      c.admit,
      c.step);
}

/// An optimizer of one's own that is SGD or a momentum may stand where these may.
Result<void> check_optimizer_of_step(const Chosen& c) {
  const auto& right = c.stepping().optimizers;
  const bool own = c.stepping().own_momentum;
  if (right.empty() ||
      std::find(right.begin(), right.end(), c.optimizer.info.name) != right.end() ||
      (own && c.optimizer.plain)) {
    return {};
  }
  return usage_error("optimizer.rule: {}{}{}; it is {}, use one of: {}",
                     own ? "" : "the step ",
                     c.step,
                     own ? " has a momentum of its own (optimizer.momentum) and replaces the rule"
                         : " replaces the rule and has no momentum",
                     c.optimizer.info.name,
                     joined(right, ", "));
}

/// Those decay every weight, or what replicas send has been decayed.
Result<void> check_decay_on(const Chosen& c) {
  const proto::Optimizer& optimizer = sections::optimizer(c.experiment);
  const bool own = c.stepping().step || c.scaling().corrects || decays_at_replicas(c.experiment);
  if (optimizer.decay_on() == proto::DecayOn::all || optimizer.weight_decay() == 0 || !own) {
    return {};
  }
  return usage_error(
      "optimizer.decay_on: the replicas' {} has weight decay of its own, on all weights; use all, "
      "or rule asgd with a codec that is not dgc",
      c.stepping().step      ? "step " + c.step
      : c.scaling().corrects ? "scale " + c.scale
                             : "codec");
}

Result<void> check_policy_of_server(const Chosen& c) {
  const std::string others =
      use_weights([](const PolicyScheme& w) { return !w.predicts && !w.step; });
  if (c.policy.predicts && c.stepping().sends_elsewhere) {
    return usage_error(
        "pipeline.weights: {} predicts along the server's own step, and {} sends weights that lead "
        "elsewhere; {}; or the rules asgd and heavy_ball",
        c.policy.info.name,
        c.step,
        others);
  }
  if (c.policy.predicts && c.scaling().corrects) {
    return usage_error(
        "pipeline.weights: {} looks ahead over the distance that {} corrects for afterwards; {}; "
        "or replicas.scale none",
        c.policy.info.name,
        c.scale,
        others);
  }
  const bool own = c.rule_scheme().adds_nothing() && !c.stepping().step;
  if (c.policy.step && (c.replicas.count() > 1 || !own) && c.travel() != Travel::change) {
    return exchange_checks::server_makes_the_step(c.experiment,
                                                  "replicas.exchange " + c.exchange.info.name);
  }
  return {};
}

/// The part for which a replica has to ask the server for each mini-batch, or for weights that it knows; "" where there
/// is none.
std::string part_that_counts(const Chosen& c) {
  if (c.additive()) {
    return c.rule;
  }
  return c.admission().counts_each ? c.admit : "";
}

std::string part_that_knows(const Chosen& c) {
  if (c.scaling().corrects) {
    return c.scale;
  }
  return c.stepping().one_at_a_time ? c.step : "";
}

Result<void> check_traffic(const Chosen& c) {
  const auto not_one = [](const char* key, std::int64_t value, const auto& with, const char* why) {
    return usage_error("replicas.exchange.parameter_server.{}: {} does not go with {}{}; use 1",
                       key,
                       value,
                       with,
                       why);
  };
  const std::int64_t n_push = c.server.n_push();
  if (n_push > 1 && c.travel() == Travel::slim) {
    return not_one("n_push", n_push, c.rule, ", whose pushes are changes, not gradients");
  }
  if (n_push > 1 && (c.stepping().counts_each || c.admission().counts_each)) {
    return not_one("n_push",
                   n_push,
                   c.stepping().counts_each ? c.step : c.admit,
                   ", which counts mini-batch by mini-batch");
  }
  if (n_push > 1 && c.scaling().corrects) {
    return not_one("n_push", n_push, c.scale, ", whose correction is of one gradient");
  }
  const std::int64_t n_fetch = c.server.n_fetch();
  const std::string counts = part_that_counts(c);
  const std::string knows = part_that_knows(c);
  if (n_fetch > 1 && !counts.empty()) {
    return not_one("n_fetch", n_fetch, counts, ", where a replica asks for each mini-batch");
  }
  if (n_fetch > 1 && !knows.empty()) {
    return not_one("n_fetch", n_fetch, knows, ", which has to know what weights a gradient is of");
  }
  if (c.server.fetch() != proto::ParameterServer::waits && !(counts.empty() && knows.empty())) {
    return usage_error(
        "replicas.exchange.parameter_server.fetch: overlaps does not go with {}, where a gradient "
        "has to be of the server's own weights; use waits",
        counts.empty() ? knows : counts);
  }
  return {};
}

}  // namespace

Result<void> check_rule(const Chosen& chosen) {
  return check_all({check_known,
                    check_parts,
                    check_parts_of_changes,
                    check_one_at_a_time,
                    check_optimizer_of_step,
                    check_decay_on,
                    check_policy_of_server,
                    check_traffic},
                   chosen);
}

}  // namespace troupe::replica_checks
