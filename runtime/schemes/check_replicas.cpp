// What goes together in `replicas`, and what does not.
#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/schemes/exchange.hpp"
#include "runtime/schemes/optimizer_scheme.hpp"
#include "runtime/schemes/policy.hpp"
#include "runtime/schemes/schedule_scheme.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace troupe {
namespace {

using Check = Result<void>;

template <class... Parts>
Check refuse(const Parts&... parts) {
  return Error{ErrorKind::usage, concat(parts...)};
}

/// The names that an experiment has chosen; a part that is by_rule has the rule's. Expects a weight
/// policy that has been registered.
struct Chosen {
  explicit Chosen(const proto::Experiment& e)
      : experiment(e),
        replicas(e.replicas()),
        exchange(choice_name(replicas.exchange())),
        rule(choice_name(replicas.rule())),
        admit(part(choice_name(replicas.admit()))),
        scale(part(choice_name(replicas.scale()))),
        step(part(choice_name(replicas.step()))),
        optimizer(optimizer_scheme(e.optimizer())),
        policy(**chosen_weights(e)),
        weights(policy.info.name) {}

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
  std::string exchange;
  std::string rule;
  std::string admit;
  std::string scale;
  std::string step;
  const OptimizerScheme& optimizer;
  const WeightScheme& policy;
  std::string weights;

 private:
  std::string part(const std::string& name) const {
    return name.empty() || name == "by_rule" ? rule : name;
  }
};

/// Keys of whatever exchange that would do nothing.
Check check_unread(const Chosen& c) {
  const std::int64_t count = c.replicas.count();
  if (c.replicas.shards() > 1 && c.exchange != "sandblaster" && !has_servers(c.experiment)) {
    return refuse("replicas.shards: ",
                  c.replicas.shards(),
                  " parts are for as many servers, and ",
                  c.exchange == "hogwild" ? "replicas.exchange hogwild"
                  : count == 1            ? "one replica"
                                          : "an all-reduce (synchronous.reduction ring or tree)",
                  " has none; right is 1");
  }
  if (c.replicas.split() != proto::Replicas::interleaved) {
    if (c.exchange == "sandblaster") {
      return refuse(
          "replicas.split: sandblaster's replicas pull portions, and have no data of their own; "
          "right is interleaved");
    }
    if (count == 1) {
      return refuse(
          "replicas.split: by_label deals the data among replicas, and replicas.count is 1; right "
          "is interleaved");
    }
  }
  return {};
}

/// Of exchanges without messages whose way could take modelled time; `why` says which.
Check check_no_exchange_times(const Chosen& c, const char* why) {
  const proto::Clock& clock = c.experiment.clock();
  const auto& seconds = clock.exchange().seconds();
  const bool latency = std::any_of(seconds.begin(), seconds.end(), [](double s) { return s > 0; });
  if (latency || clock.bandwidth() > 0) {
    return refuse(latency ? "clock.exchange" : "clock.bandwidth", ": ", why, "; leave it out");
  }
  return {};
}

Check check_custom(const Chosen& c) {
  if (c.rule == "custom") {
    if (const auto chosen = rules().chosen(c.replicas.rule().custom(), "replicas.rule"); !chosen) {
      return chosen.error();
    }
  }
  return {};
}

/// What the schemes of the parts themselves have against the experiment.
Check check_hooks(const Chosen& c) {
  for (const RuleScheme* part : {&c.rule_scheme(), &c.admission(), &c.scaling(), &c.stepping()}) {
    if (part->info.check) {
      if (auto fits = part->info.check(c.experiment); !fits) {
        return fits;
      }
    }
  }
  return {};
}

/// Of exchanges other than parameter_server.
Check check_no_rule(const Chosen& c) {
  const auto refuse_part = [&](const char* key, const std::string& value) {
    return refuse("replicas.",
                  key,
                  ": ",
                  value,
                  " is for replicas.exchange parameter_server, which is ",
                  c.exchange,
                  "; leave it out or change the exchange");
  };
  if (c.rule != "asgd" && !c.rule.empty()) {
    return refuse_part("rule", c.rule);
  }
  const auto chosen = [](const std::string& name) {
    return !name.empty() && name != "by_rule";
  };
  if (const std::string name = choice_name(c.replicas.admit()); chosen(name)) {
    return refuse_part("admit", name);
  }
  if (const std::string name = choice_name(c.replicas.scale()); chosen(name)) {
    return refuse_part("scale", name);
  }
  if (const std::string name = choice_name(c.replicas.step()); chosen(name)) {
    return refuse_part("step", name);
  }
  return {};
}

/// Pipelines whose weights the server's optimizer has to make.
Check check_weights(const Chosen& c, const std::string& server) {
  const bool several = c.replicas.count() > 1 || c.rule != "asgd";
  if (several && c.policy.step) {
    return refuse("pipeline.weights: ",
                  c.weights,
                  " changes the step of each chunk by its own delay, and with ",
                  server,
                  " the server makes the step; ",
                  use_weights([](const WeightScheme& w) { return !w.step; }),
                  "; or an exchange whose replicas train by themselves (averaging, easgd, diloco, "
                  "wsp)");
  }
  return {};
}

Check check_parts(const Chosen& c) {
  const std::string admit = choice_name(c.replicas.admit());
  if (c.additive()) {
    if (c.scale != c.rule && c.scale != "none") {
      return refuse("replicas.scale: ",
                    c.scale,
                    " is for gradients; with replicas.rule ",
                    c.rule,
                    " a push is a change of the weights, which is added as it is: use none");
    }
    if (c.step != c.rule) {
      return refuse("replicas.step: ",
                    c.step,
                    " is for gradients; with replicas.rule ",
                    c.rule,
                    " a push is a change of the weights: leave it by_rule");
    }
    const bool any_order = c.rule_scheme().any_admission && c.admission().applies_each;
    if (c.admit != c.rule && !any_order) {
      return refuse("replicas.admit: ",
                    c.admit,
                    " does not go with replicas.rule ",
                    c.rule,
                    c.rule_scheme().any_admission
                        ? ", whose replicas count on each of their changes being added: right are "
                          "by_rule, asgd and delayed"
                        : ", which is defined by who waits: leave it by_rule");
    }
  }
  if (c.stepping().one_at_a_time && c.admission().pushes) {
    return refuse("replicas.admit: ",
                  c.admit,
                  " makes one update of several gradients, and the step ",
                  c.step,
                  " takes one at a time; right are asgd, ringmaster and delayed");
  }
  return {};
}

Check check_optimizer(const Chosen& c) {
  const RuleScheme& step = c.stepping();
  const std::string& optimizer = c.optimizer.info.name;
  const auto& may_stand = step.optimizers;
  const bool named = std::find(may_stand.begin(), may_stand.end(), optimizer) != may_stand.end();
  // An optimizer of one's own that is SGD or a momentum may stand where these may.
  if (!may_stand.empty() && !named && !(step.own_momentum && c.optimizer.plain)) {
    return refuse("optimizer.rule: ",
                  step.own_momentum ? "" : "the step ",
                  c.step,
                  step.own_momentum
                      ? " has a momentum of its own (optimizer.momentum) and replaces the rule"
                      : " replaces the rule and has no momentum",
                  "; it is ",
                  optimizer,
                  ", use one of: ",
                  joined(may_stand));
  }
  const auto looks_at_what_is = [](const WeightScheme& w) {
    return !w.predicts && !w.step;
  };
  if (c.policy.predicts && step.sends_elsewhere) {
    return refuse("pipeline.weights: ",
                  c.weights,
                  " predicts along the server's own step, and ",
                  c.step,
                  " sends weights that lead elsewhere; ",
                  use_weights(looks_at_what_is),
                  "; or the rules asgd and heavy_ball");
  }
  if (c.policy.predicts && c.scaling().corrects) {
    return refuse("pipeline.weights: ",
                  c.weights,
                  " looks ahead over the distance that ",
                  c.scale,
                  " corrects for afterwards; ",
                  use_weights(looks_at_what_is),
                  "; or replicas.scale none");
  }
  return {};
}

Check check_traffic(const Chosen& c) {
  const proto::ParameterServer& server = c.replicas.exchange().parameter_server();
  const RuleScheme& step = c.stepping();
  const RuleScheme& admission = c.admission();
  const auto refuse_key =
      [&](const char* key, std::int64_t value, const std::string& with, const char* why) {
        return refuse("replicas.exchange.parameter_server.",
                      key,
                      ": ",
                      value,
                      " does not go with ",
                      with,
                      why,
                      "; right is 1");
      };
  if (server.n_push() > 1) {
    if (c.travel() == Travel::slim) {
      return refuse_key(
          "n_push", server.n_push(), c.rule, ", whose pushes are changes, not gradients");
    }
    if (step.counts_each || admission.counts_each) {
      return refuse_key("n_push",
                        server.n_push(),
                        step.counts_each ? c.step : c.admit,
                        ", which counts mini-batch by mini-batch");
    }
    if (c.scaling().corrects) {
      return refuse_key(
          "n_push", server.n_push(), c.scale, ", whose correction is of one gradient");
    }
  }
  if (server.n_fetch() > 1) {
    if (c.additive() || admission.counts_each) {
      return refuse_key("n_fetch",
                        server.n_fetch(),
                        c.additive() ? c.rule : c.admit,
                        ", where a replica asks for each mini-batch");
    }
    if (c.scaling().corrects || step.one_at_a_time) {
      return refuse_key("n_fetch",
                        server.n_fetch(),
                        c.scaling().corrects ? c.scale : c.step,
                        ", which has to know what weights a gradient is of");
    }
  }
  return {};
}

Check check_parameter_server(const Chosen& c) {
  if (auto known = check_custom(c); !known) {
    return known;
  }
  const bool replica_steps = c.travel() == Travel::change;
  for (const Check& check :
       {check_hooks(c),
        check_parts(c),
        check_optimizer(c),
        replica_steps ? Check{} : check_weights(c, "replicas.exchange parameter_server"),
        check_traffic(c)}) {
    if (!check) {
      return check;
    }
  }
  return {};
}

Check check_synchronous(const Chosen& c) {
  const proto::Synchronous& options = c.replicas.exchange().synchronous();
  const std::int64_t count = c.replicas.count();
  if (options.backup() >= count && options.backup() > 0) {
    return refuse("replicas.exchange.synchronous.backup: ",
                  options.backup(),
                  " of replicas.count ",
                  count,
                  " leaves nobody; right is less than ",
                  count);
  }
  const auto schedule = chosen_schedule(c.experiment);
  if (!schedule) {
    return schedule.error();
  }
  if (options.backup() > 0 && c.experiment.pipeline().stages() > 1 && !(*schedule)->flushed) {
    return refuse("replicas.exchange.synchronous.backup: ",
                  options.backup(),
                  " drops what was computed at older weights than the newest, and under "
                  "pipeline.schedule ",
                  (*schedule)->info.name,
                  " every gradient but the last stage's is; right is 0, or a flushed schedule");
  }
  if (options.reduction() != proto::Synchronous::server) {
    if (options.backup() > 0) {
      return refuse("replicas.exchange.synchronous.backup: ",
                    options.backup(),
                    " needs a server that does not wait; reduction is ",
                    proto::Synchronous::Reduction_Name(options.reduction()),
                    ", right is server");
    }
    return {};
  }
  return count > 1 ? check_weights(c, "replicas.exchange synchronous") : Check{};
}

Check check_averaging(const Chosen& c) {
  const proto::Averaging& options = c.replicas.exchange().averaging();
  if (options.state() == proto::Averaging::averaged && c.optimizer.matrices) {
    return refuse(
        "replicas.exchange.averaging.state: averaged needs moments that are linear in the "
        "gradients' slices; optimizer.rule is ",
        c.optimizer.info.name,
        ", right are kept and reset");
  }
  return {};
}

Check check_bmuf(const Chosen& c) {
  const double momentum = c.replicas.exchange().bmuf().momentum();
  if (momentum < 0 && momentum != -1) {
    return refuse("replicas.exchange.bmuf.momentum: ",
                  momentum,
                  "; right are -1 (for 1 - 1/R) and 0 to 0.9999");
  }
  return {};
}

Check check_diloco(const Chosen& c) {
  const proto::Diloco& options = c.replicas.exchange().diloco();
  const std::int64_t count = c.replicas.count();
  const auto& mode = options.mode();
  if (mode.has_asynchronous() &&
      mode.asynchronous().activation() * static_cast<double>(count) > 1) {
    return refuse("replicas.exchange.diloco.mode.asynchronous.activation: ",
                  mode.asynchronous().activation(),
                  " is more than 1 / replicas.count, of which ",
                  count,
                  " in between would be more than the whole momentum");
  }
  if (mode.has_decoupled() && mode.decoupled().quorum() > count) {
    return refuse("replicas.exchange.diloco.mode.decoupled.quorum: ",
                  mode.decoupled().quorum(),
                  " is more than replicas.count ",
                  count,
                  " and would never be met");
  }
  if (mode.has_streaming() && mode.streaming().overlap() >= options.period()) {
    return refuse("replicas.exchange.diloco.mode.streaming.overlap: ",
                  mode.streaming().overlap(),
                  " mini-batches; right is less than the period, ",
                  options.period());
  }
  return {};
}

Check check_hogwild(const Chosen& c) {
  for (const std::string& device : c.experiment.placement().devices()) {
    if (device != "cpu") {
      return refuse(
          "placement.devices: ",
          device,
          " does not go with replicas.exchange hogwild, whose replicas write to one buffer "
          "in host memory; right is cpu");
    }
  }
  if (!c.policy.newest_only) {
    return refuse(
        "pipeline.weights: ",
        c.weights,
        " names steps, and the buffer that hogwild shares has none: what a stage reads is "
        "whatever is there; ",
        use_weights([](const WeightScheme& w) { return w.newest_only; }));
  }
  return check_no_exchange_times(
      c, "hogwild's replicas write to one buffer, and nothing travels between them");
}

Check check_sandblaster(const Chosen& c) {
  return check_no_exchange_times(
      c, "the way of sandblaster's vectors is not modelled, only the work on its portions");
}

}  // namespace

Result<void> check_replicas(const proto::Experiment& experiment) {
  if (const auto policy = chosen_weights(experiment); !policy) {
    return policy.error();
  }
  const Chosen c(experiment);
  if (c.exchange == "custom") {
    const proto::CustomScheme& custom = c.replicas.exchange().custom();
    if (const auto chosen = exchanges().chosen(custom, "replicas.exchange"); !chosen) {
      return chosen.error();
    }
  }
  if (auto check = check_unread(c); !check) {
    return check;
  }
  const ExchangeScheme& exchange = exchange_of(experiment);
  if (exchange.ruled) {
    return check_parameter_server(c);
  }
  if (auto check = check_no_rule(c); !check) {
    return check;
  }
  if (exchange.info.check) {
    return exchange.info.check(experiment);
  }
  switch (c.replicas.exchange().kind_case()) {
    case proto::Exchange::kSynchronous:
      return check_synchronous(c);
    case proto::Exchange::kAveraging:
      return check_averaging(c);
    case proto::Exchange::kBmuf:
      return check_bmuf(c);
    case proto::Exchange::kDiloco:
      return check_diloco(c);
    case proto::Exchange::kHogwild:
      return check_hogwild(c);
    case proto::Exchange::kSandblaster:
      return check_sandblaster(c);
    default:
      return {};
  }
}

}  // namespace troupe
