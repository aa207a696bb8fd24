// Rows about exchanges whose server asks a rule: what goes together of rule, parts, optimizer, pipeline
// and traffic. They look at the facts that schemes tell of themselves.
#include "runtime/schemes/exchange_checks.hpp"
#include "runtime/schemes/replica_checks.hpp"

#include <algorithm>
#include <string>

namespace troupe::replica_checks {
namespace {

using Row = Constraint<Chosen>;
using Rows = Constraints<Chosen>;

Result<void> check_rule_known(const Chosen& c) {
  if (c.rule == "custom") {
    if (const auto chosen = rules().chosen(c.replicas.rule().custom(), "replicas.rule"); !chosen) {
      return chosen.error();
    }
  }
  return {};
}

/// What the schemes of the parts themselves have against the experiment.
Result<void> check_parts(const Chosen& c) {
  for (const RuleScheme* part : {&c.rule_scheme(), &c.admission(), &c.scaling(), &c.stepping()}) {
    if (part->info.check) {
      if (auto fits = part->info.check(c.experiment); !fits) {
        return fits;
      }
    }
  }
  return {};
}

Rows part_rows() {
  return {
      asked("rule", {"replicas.rule"}, check_rule_known),
      asked("parts", {"replicas"}, check_parts),
      {.name = "scale_of_gradients",
       .keys = {"replicas.scale"},
       .holds =
           [](const Chosen& c) { return !c.additive() || c.scale == c.rule || c.scale == "none"; },
       .says =
           [](const Chosen& c) {
             return concat("replicas.scale: ",
                           c.scale,
                           " is for gradients; with replicas.rule ",
                           c.rule,
                           " a push is a change of the weights, which is added as it is: use none");
           }},
      {.name = "step_of_gradients",
       .keys = {"replicas.step"},
       .holds = [](const Chosen& c) { return !c.additive() || c.step == c.rule; },
       .says =
           [](const Chosen& c) {
             return concat("replicas.step: ",
                           c.step,
                           " is for gradients; with replicas.rule ",
                           c.rule,
                           " a push is a change of the weights: leave it by_rule");
           }},
      {.name = "admission_of_changes",
       .keys = {"replicas.admit"},
       .holds =
           [](const Chosen& c) {
             const bool any_order = c.rule_scheme().any_admission && c.admission().applies_each;
             return !c.additive() || c.admit == c.rule || any_order;
           },
       .says =
           [](const Chosen& c) {
             return concat("replicas.admit: ",
                           c.admit,
                           " does not go with replicas.rule ",
                           c.rule,
                           c.rule_scheme().any_admission
                               ? ", whose replicas count on each of their changes being added: "
                                 "right are by_rule, asgd and delayed"
                               : ", which is defined by who waits: leave it by_rule");
           }},
      {.name = "one_gradient_an_update",
       .keys = {"replicas.admit"},
       .holds =
           [](const Chosen& c) { return !c.stepping().one_at_a_time || !c.admission().pushes; },
       .says =
           [](const Chosen& c) {
             return concat("replicas.admit: ",
                           c.admit,
                           " makes one update of several gradients, and the step ",
                           c.step,
                           " takes one at a time; right are asgd, ringmaster and delayed");
           }},
  };
}

/// An optimizer of one's own that is SGD or a momentum may stand where these may.
bool may_stand(const Chosen& c) {
  const auto& right = c.stepping().optimizers;
  return right.empty() ||
         std::find(right.begin(), right.end(), c.optimizer.info.name) != right.end() ||
         (c.stepping().own_momentum && c.optimizer.plain);
}

bool looks_at_what_is(const PolicyScheme& w) {
  return !w.predicts && !w.step;
}

Rows optimizer_rows() {
  return {
      {.name = "optimizer_of_the_step",
       .keys = {"optimizer.rule"},
       .holds = may_stand,
       .says =
           [](const Chosen& c) {
             const bool own = c.stepping().own_momentum;
             return concat(
                 "optimizer.rule: ",
                 own ? "" : "the step ",
                 c.step,
                 own ? " has a momentum of its own (optimizer.momentum) and replaces the rule"
                     : " replaces the rule and has no momentum",
                 "; it is ",
                 c.optimizer.info.name,
                 ", use one of: ",
                 joined(c.stepping().optimizers));
           }},
      {.name = "predicts_along_the_step",
       .keys = {"pipeline.weights"},
       .holds = [](const Chosen& c) { return !c.policy.predicts || !c.stepping().sends_elsewhere; },
       .says =
           [](const Chosen& c) {
             return concat("pipeline.weights: ",
                           c.policy.info.name,
                           " predicts along the server's own step, and ",
                           c.step,
                           " sends weights that lead elsewhere; ",
                           use_weights(looks_at_what_is),
                           "; or the rules asgd and heavy_ball");
           }},
      {.name = "predicts_or_corrects",
       .keys = {"pipeline.weights"},
       .holds = [](const Chosen& c) { return !c.policy.predicts || !c.scaling().corrects; },
       .says =
           [](const Chosen& c) {
             return concat("pipeline.weights: ",
                           c.policy.info.name,
                           " looks ahead over the distance that ",
                           c.scale,
                           " corrects for afterwards; ",
                           use_weights(looks_at_what_is),
                           "; or replicas.scale none");
           }},
      {.name = "step_by_the_server",
       .keys = {"pipeline.weights"},
       .holds =
           [](const Chosen& c) {
             const bool own = c.rule == "asgd" && (c.step == c.rule || c.step == "optimizer");
             const bool several = c.replicas.count() > 1 || !own;
             return !several || !c.policy.step || c.travel() == Travel::change;
           },
       .says =
           [](const Chosen& c) {
             return exchange_checks::server_makes_the_step(
                 c.experiment, "replicas.exchange " + c.exchange.info.name);
           }},
  };
}

/// "replicas.exchange.parameter_server.n_push: 2 does not go with dana_slim, ...; right is 1"
std::string not_with(const char* key,
                     std::int64_t value,
                     const std::string& with,
                     const char* why) {
  return concat("replicas.exchange.parameter_server.",
                key,
                ": ",
                value,
                " does not go with ",
                with,
                why,
                "; right is 1");
}

Row n_push_row(std::string_view name,
               bool (*forbids)(const Chosen&),
               std::string (*with)(const Chosen&),
               const char* why) {
  return {.name = name,
          .keys = {"replicas.exchange.parameter_server.n_push"},
          .holds = [forbids](const Chosen& c) { return c.server.n_push() <= 1 || !forbids(c); },
          .says =
              [with, why](const Chosen& c) {
                return not_with("n_push", c.server.n_push(), with(c), why);
              }};
}

Row n_fetch_row(std::string_view name,
                bool (*forbids)(const Chosen&),
                std::string (*with)(const Chosen&),
                const char* why) {
  return {.name = name,
          .keys = {"replicas.exchange.parameter_server.n_fetch"},
          .holds = [forbids](const Chosen& c) { return c.server.n_fetch() <= 1 || !forbids(c); },
          .says =
              [with, why](const Chosen& c) {
                return not_with("n_fetch", c.server.n_fetch(), with(c), why);
              }};
}

Rows traffic_rows() {
  return {
      n_push_row(
          "n_push_of_gradients",
          [](const Chosen& c) { return c.travel() == Travel::slim; },
          [](const Chosen& c) { return c.rule; },
          ", whose pushes are changes, not gradients"),
      n_push_row(
          "n_push_counted",
          [](const Chosen& c) { return c.stepping().counts_each || c.admission().counts_each; },
          [](const Chosen& c) { return c.stepping().counts_each ? c.step : c.admit; },
          ", which counts mini-batch by mini-batch"),
      n_push_row(
          "n_push_corrected",
          [](const Chosen& c) { return c.scaling().corrects; },
          [](const Chosen& c) { return c.scale; },
          ", whose correction is of one gradient"),
      n_fetch_row(
          "n_fetch_of_each",
          [](const Chosen& c) { return c.additive() || c.admission().counts_each; },
          [](const Chosen& c) { return c.additive() ? c.rule : c.admit; },
          ", where a replica asks for each mini-batch"),
      n_fetch_row(
          "n_fetch_corrected",
          [](const Chosen& c) { return c.scaling().corrects || c.stepping().one_at_a_time; },
          [](const Chosen& c) { return c.scaling().corrects ? c.scale : c.step; },
          ", which has to know what weights a gradient is of"),
      {.name = "fetch_that_overlaps",
       .keys = {"replicas.exchange.parameter_server.fetch"},
       .holds =
           [](const Chosen& c) {
             const bool counts = c.additive() || c.admission().counts_each;
             const bool knows = c.scaling().corrects || c.stepping().one_at_a_time;
             return c.server.fetch() == proto::ParameterServer::waits || !(counts || knows);
           },
       .says =
           [](const Chosen& c) {
             const std::string& part = c.additive()                ? c.rule
                                       : c.admission().counts_each ? c.admit
                                       : c.scaling().corrects      ? c.scale
                                                                   : c.step;
             return concat("replicas.exchange.parameter_server.fetch: overlaps does not go with ",
                           part,
                           ", where a gradient has to be of the server's own weights; right is "
                           "waits");
           }},
  };
}

}  // namespace

Rows rows_with_rule() {
  Rows all;
  for (const Rows& rows : {part_rows(), optimizer_rows(), traffic_rows()}) {
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

}  // namespace troupe::replica_checks
