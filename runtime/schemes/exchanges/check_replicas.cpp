// What goes together in `replicas`, and what does not: checks of any exchange, of those whose server asks
// a rule, and of those that have none. They look at what schemes say of themselves; what one scheme alone
// has against an experiment is in its own `check`.
#include "experiment/clock.pb.h"
#include "experiment/replicas.pb.h"
#include "experiment/run.pb.h"
#include "kernels/wording.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/codecs/codec.hpp"
#include "runtime/schemes/exchanges/exchange_checks.hpp"
#include "runtime/schemes/exchanges/replica_checks.hpp"

#include <algorithm>
#include <string>

namespace troupe {
namespace {

using replica_checks::Chosen;

/// The key of modelled time between servers that is set; "" where none is.
std::string time_between_servers(const proto::Experiment& e) {
  const auto& seconds = sections::clock(e).between_servers().seconds();
  if (std::any_of(seconds.begin(), seconds.end(), [](double s) { return s > 0; })) {
    return "clock.between_servers";
  }
  return sections::clock(e).bandwidth_between_servers() > 0 ? "clock.bandwidth_between_servers"
                                                            : "";
}

Result<void> check_any_exchange(const Chosen& c) {
  const Shared shared = shared_by(c.experiment);
  if (c.replicas.shards() > 1 && shared != Shared::servers && shared != Shared::own) {
    const bool alone = c.replicas.count() == 1 && shared != Shared::buffer;
    return usage_error("replicas.shards: {} slices are for as many servers, and {} has none; use 1",
                       c.replicas.shards(),
                       alone ? "one replica" : "replicas.exchange " + c.exchange.info.name);
  }
  if (c.replicas.split() != proto::Replicas::interleaved && c.replicas.count() == 1) {
    return usage_error(
        "replicas.split: by_label deals the data among replicas, and replicas.count is 1; use "
        "interleaved");
  }
  const std::string time = time_between_servers(c.experiment);
  if (groups_of(c.experiment) == 0 && !time.empty()) {
    return usage_error(
        "{}: is of the links between the servers of groups and the global one, and with "
        "replicas.exchange {} there are none; use replicas.exchange halos, or clock.exchange "
        "and clock.bandwidth",
        time,
        c.exchange.info.name);
  }
  return {};
}

/// One buffer of all replicas, in host memory, without steps.
Result<void> check_shared_buffer(const Chosen& c) {
  if (shared_by(c.experiment) != Shared::buffer) {
    return {};
  }
  for (const std::string& device : sections::placement(c.experiment).devices()) {
    if (device != "cpu") {
      return usage_error(
          "placement.devices: {} does not go with replicas.exchange {}, whose replicas write to "
          "one buffer in host memory; use cpu",
          device,
          c.exchange.info.name);
    }
  }
  if (!c.policy.newest_only) {
    return usage_error(
        "pipeline.weights: {} names steps, and the buffer that {} shares has none: what a stage "
        "reads is whatever is there; {}",
        c.policy.info.name,
        c.exchange.info.name,
        use_weights([](const PolicyScheme& w) { return w.newest_only; }));
  }
  if (const std::string time = exchange_checks::exchange_time_key(c.experiment); !time.empty()) {
    return usage_error(
        "{}: {}'s replicas write to one buffer, and nothing travels between them; leave it out",
        time,
        c.exchange.info.name);
  }
  return {};
}

/// Keys that an exchange without a rule does not read.
Result<void> check_without_rule(const Chosen& c) {
  struct Unread {
    const char* key;
    std::string value;
    const char* usual;
  };

  for (const Unread& unread : {Unread{"rule", c.rule, "asgd"},
                               Unread{"admit", choice_name(c.replicas.admit()), "by_rule"},
                               Unread{"scale", choice_name(c.replicas.scale()), "by_rule"},
                               Unread{"step", choice_name(c.replicas.step()), "by_rule"}}) {
    if (!unread.value.empty() && unread.value != unread.usual) {
      return usage_error(
          "replicas.{}: {} is for replicas.exchange parameter_server, which is {}; leave it out or "
          "change the exchange",
          unread.key,
          unread.value,
          c.exchange.info.name);
    }
  }
  return {};
}

}  // namespace

Result<void> check_replicas(const proto::Experiment& experiment) {
  TROUPE_TRY(chosen_weights(experiment));
  if (const proto::Exchange& exchange = sections::replicas(experiment).exchange();
      exchange.has_custom()) {
    TROUPE_TRY(exchanges().chosen(exchange.custom(), "replicas.exchange"));
  }
  const Chosen c(experiment);
  if (c.exchange.info.check) {
    TROUPE_TRY(c.exchange.info.check(experiment));
  }
  const auto of_rule = c.exchange.ruled ? replica_checks::check_rule : check_without_rule;
  TROUPE_TRY(check_all({check_any_exchange, check_shared_buffer, of_rule}, c));
  return check_codecs(experiment);
}

}  // namespace troupe
