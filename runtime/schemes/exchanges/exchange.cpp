#include "runtime/schemes/exchanges/exchange.hpp"

#include "experiment/optimizer.pb.h"
#include "experiment/replicas.pb.h"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/exchanges/exchanges.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

Registry<ExchangeScheme>& table() {
  static Registry<ExchangeScheme> all(exchange_schemes::built_in());
  return all;
}

/// One replica that pushes each gradient and fetches each version is a run without replicas, unless
/// somebody asks for a rule's own arithmetic.
bool is_plain(const ExchangeScheme& exchange, const proto::Replicas& replicas) {
  const proto::ParameterServer& server = replicas.exchange().parameter_server();
  return exchange.ruled && adds_nothing(replicas) && server.n_push() == 1 &&
         server.n_fetch() == 1 && server.fetch() == proto::ParameterServer::waits;
}

/// Updates by which a gradient is late where exchange and rule do nothing about it.
double unattended_staleness(const proto::Experiment& e) {
  const proto::Replicas& r = sections::replicas(e);
  const ExchangeScheme& exchange = exchange_of(e);
  if (r.count() == 1) {
    return 1;
  }
  if (!exchange.ruled) {
    return exchange.staleness ? exchange.staleness(e) : 1;
  }
  // A rule whose replicas move by themselves is never weakened.
  if (const RuleScheme& rule = rule_of(r); rule.link && rule.staleness) {
    return rule.staleness(e);
  }
  if (scale_of(r).bears_delay || step_of(r).bears_delay) {
    return 1;
  }
  const RuleScheme& admit = admission_of(r);
  if (admit.staleness) {
    return admit.staleness(e);
  }
  const auto pushes = static_cast<double>(admit.pushes ? admit.pushes(e) : 1);
  return std::max(1.0, static_cast<double>(r.count()) / pushes);
}

/// What a registered exchange's replicas share. Error (usage) where it does not hold together.
Result<void> settle_shared(ExchangeScheme& exchange) {
  if (exchange.peer) {
    if (exchange.link || exchange.rule || exchange.ruled || exchange.each_updates ||
        exchange.shares) {
      return Error{ErrorKind::usage,
                   fill_in("register_exchange: {} has a factory `peer`, so that it has no servers: "
                           "leave `link`, `rule`, `ruled`, `each_updates` and `shares` alone",
                           exchange.info.name)};
    }
    exchange.shared = Shared::nothing;
  } else if (exchange.shared != Shared::servers || exchange.shares) {
    return usage_error("register_exchange: {} has no servers, so that it needs a factory `peer`",
                       exchange.info.name);
  }
  return {};
}

}  // namespace

Result<void> register_exchange(ExchangeScheme exchange) {
  TROUPE_TRY(settle_shared(exchange));
  return table().add(std::move(exchange), "register_exchange");
}

Result<void> register_built_in_exchange(ExchangeScheme exchange) {
  TROUPE_TRY(settle_shared(exchange));
  return table().add_built_in(std::move(exchange), "register_built_in_exchange");
}

const Registry<ExchangeScheme>& exchanges() {
  return table();
}

bool has_coded_peers(const proto::Experiment& experiment) {
  return sections::replica_count(experiment) > 1 && exchange_of(experiment).codec_between_peers;
}

const ExchangeScheme& exchange_of(const proto::Experiment& experiment) {
  const proto::Exchange& chosen = sections::replicas(experiment).exchange();
  const std::string kind = choice_name(chosen);
  const std::string name = kind.empty()       ? "parameter_server"
                           : kind == "custom" ? chosen.custom().name()
                                              : kind;
  const ExchangeScheme* const found = exchanges().find(name);
  TROUPE_CHECK(found, "no exchange '", name, "'");
  return *found;
}

Shared shared_by(const proto::Experiment& experiment) {
  const ExchangeScheme& exchange = exchange_of(experiment);
  const Shared shared = exchange.shares ? exchange.shares(experiment) : exchange.shared;
  const bool plain = sections::replica_count(experiment) == 1 &&
                     is_plain(exchange, sections::replicas(experiment));
  return shared == Shared::servers && plain ? Shared::nothing : shared;
}

bool has_servers(const proto::Experiment& experiment) {
  return shared_by(experiment) == Shared::servers;
}

Link make_link(const LinkContext& context) {
  const ExchangeScheme& exchange = exchange_of(context.experiment);
  Link link = exchange.link ? exchange.link(context) : Link{};
  if (exchange.ruled) {
    if (const RuleScheme& rule = rule_of(sections::replicas(context.experiment)); rule.link) {
      rule.link(link, context.experiment);
    }
  }
  return link;
}

Rule make_rule(const RuleContext& context) {
  const ExchangeScheme& exchange = exchange_of(context.experiment);
  if (exchange.ruled) {
    return make_server_rule(context);
  }
  TROUPE_CHECK(exchange.rule, "replicas.exchange ", exchange.info.name, " has no server");
  Rule rule = exchange.rule(context);
  TROUPE_CHECK(rule.admission, "exchange ", exchange.info.name, ": its factory made no Admission");
  TROUPE_CHECK(rule.scale, "exchange ", exchange.info.name, ": its factory made no Scale");
  TROUPE_CHECK(rule.step, "exchange ", exchange.info.name, ": its factory made no Step");
  return rule;
}

std::int64_t groups_of(const proto::Experiment& experiment) {
  const ExchangeScheme& exchange = exchange_of(experiment);
  return exchange.groups && has_servers(experiment) ? exchange.groups(experiment) : 0;
}

std::int32_t group_of(const proto::Experiment& experiment, std::int32_t r) {
  return static_cast<std::int32_t>(r * groups_of(experiment) / sections::replica_count(experiment));
}

GroupServer group_server_of(const RuleContext& context) {
  const ExchangeScheme& exchange = exchange_of(context.experiment);
  TROUPE_CHECK(
      exchange.group_server, "replicas.exchange ", exchange.info.name, " has no servers of groups");
  return exchange.group_server(context);
}

std::int64_t batches_per_update(const proto::Experiment& experiment) {
  const proto::Replicas& replicas = sections::replicas(experiment);
  const ExchangeScheme& exchange = exchange_of(experiment);
  if (exchange.each_updates) {
    return 1;
  }
  if (!exchange.ruled) {
    return replicas.count();
  }
  const RuleScheme& admit = admission_of(replicas);
  const std::int64_t pushes =
      admit.pushes ? std::max<std::int64_t>(1, admit.pushes(experiment)) : 1;
  return pushes * std::max<std::int64_t>(1, replicas.exchange().parameter_server().n_push());
}

proto::Optimizer warmed_up(const proto::Experiment& experiment,
                           std::int64_t updates,
                           std::int64_t five_epochs) {
  proto::Optimizer optimizer = sections::optimizer(experiment);
  const proto::Replicas& replicas = sections::replicas(experiment);
  if (replicas.count() == 1 || replicas.rate_factor() > 0 || !exchange_of(experiment).ruled) {
    return optimizer;
  }
  const RuleScheme& step = step_of(replicas);
  const std::int64_t over = updates > 0 ? std::min(five_epochs, updates / 4) : five_epochs;
  if (step.bears_delay && step.own_momentum && optimizer.warm_up() < over) {
    optimizer.set_warm_up(over);
    optimizer.set_warm_up_from(1 / static_cast<double>(replicas.count()));
  }
  return optimizer;
}

double rate_factor(const proto::Experiment& experiment) {
  const double given = sections::replicas(experiment).rate_factor();
  return given > 0 ? given : 1 / unattended_staleness(experiment);
}

}  // namespace troupe
