// What goes together in `replicas`, and what does not: rows about any exchange, about those whose
// server asks a rule, and about those that have none. They look at what schemes say of themselves;
// what one scheme alone has against an experiment is in its own `check`.
#include "experiment.pb.h"
#include "runtime/schemes/codec.hpp"
#include "runtime/schemes/exchange_checks.hpp"
#include "runtime/schemes/replica_checks.hpp"

#include <algorithm>
#include <string>

namespace troupe {
namespace {

using replica_checks::Chosen;

using Row = Constraint<Chosen>;
using Rows = Constraints<Chosen>;

// -- any exchange

/// One buffer of all replicas, in host memory, without steps.
bool shares_buffer(const Chosen& c) {
  return shared_by(c.experiment) == Shared::buffer;
}

/// The first device that is not the host's; "" where there is none.
std::string other_device(const Chosen& c) {
  const auto& devices = c.experiment.placement().devices();
  const auto other = std::find_if(
      devices.begin(), devices.end(), [](const std::string& device) { return device != "cpu"; });
  return other == devices.end() ? "" : *other;
}

/// The key of modelled time between servers that is set; "" where none is.
std::string time_between_servers(const proto::Experiment& e) {
  const auto& seconds = e.clock().between_servers().seconds();
  if (std::any_of(seconds.begin(), seconds.end(), [](double s) { return s > 0; })) {
    return "clock.between_servers";
  }
  return e.clock().bandwidth_between_servers() > 0 ? "clock.bandwidth_between_servers" : "";
}

Rows common_rows() {
  return {
      {.name = "shards_of_servers",
       .keys = {"replicas.shards"},
       .holds =
           [](const Chosen& c) {
             const Shared shared = shared_by(c.experiment);
             return c.replicas.shards() <= 1 || shared == Shared::servers || shared == Shared::own;
           },
       .says =
           [](const Chosen& c) {
             const bool alone = c.replicas.count() == 1 && !shares_buffer(c);
             return concat("replicas.shards: ",
                           c.replicas.shards(),
                           " slices are for as many servers, and ",
                           alone ? "one replica" : "replicas.exchange " + c.exchange.info.name,
                           " has none; right is 1");
           }},
      {.name = "split_among_replicas",
       .keys = {"replicas.split"},
       .holds =
           [](const Chosen& c) {
             return c.replicas.split() == proto::Replicas::interleaved || c.replicas.count() > 1;
           },
       .says = always("replicas.split: by_label deals the data among replicas, and replicas.count "
                      "is 1; right is interleaved")},
      {.name = "links_between_servers",
       .keys = {"clock.between_servers", "clock.bandwidth_between_servers"},
       .holds =
           [](const Chosen& c) {
             return groups_of(c.experiment) > 0 || time_between_servers(c.experiment).empty();
           },
       .says =
           [](const Chosen& c) {
             return concat(
                 time_between_servers(c.experiment),
                 ": is of the links between the servers of groups and the global one, and "
                 "with replicas.exchange ",
                 c.exchange.info.name,
                 " there are none; right is replicas.exchange halos, or clock.exchange and "
                 "clock.bandwidth");
           }},
      {.name = "buffer_in_host_memory",
       .keys = {"placement.devices"},
       .holds = [](const Chosen& c) { return !shares_buffer(c) || other_device(c).empty(); },
       .says =
           [](const Chosen& c) {
             return concat("placement.devices: ",
                           other_device(c),
                           " does not go with replicas.exchange ",
                           c.exchange.info.name,
                           ", whose replicas write to one buffer in host memory; right is cpu");
           }},
      {.name = "buffer_has_no_steps",
       .keys = {"pipeline.weights"},
       .holds = [](const Chosen& c) { return !shares_buffer(c) || c.policy.newest_only; },
       .says =
           [](const Chosen& c) {
             return concat("pipeline.weights: ",
                           c.policy.info.name,
                           " names steps, and the buffer that ",
                           c.exchange.info.name,
                           " shares has none: what a stage reads is whatever is there; ",
                           use_weights([](const PolicyScheme& w) { return w.newest_only; }));
           }},
      {.name = "buffer_takes_no_time",
       .keys = {"clock.exchange", "clock.bandwidth"},
       .holds =
           [](const Chosen& c) {
             return !shares_buffer(c) || exchange_checks::exchange_time_key(c.experiment).empty();
           },
       .says =
           [](const Chosen& c) {
             return concat(exchange_checks::exchange_time_key(c.experiment),
                           ": ",
                           c.exchange.info.name,
                           "'s replicas write to one buffer, and nothing travels between them; "
                           "leave it out");
           }},
  };
}

// -- exchanges without a rule

/// A row for one of the keys that such an exchange does not read.
Row unread(std::string_view name,
           std::string_view key,
           std::string (*value)(const Chosen&),
           std::string_view usual) {
  return {
      .name = name,
      .keys = {key},
      .holds = [value, usual](const Chosen& c) { return value(c).empty() || value(c) == usual; },
      .says =
          [key, value](const Chosen& c) {
            return concat(key,
                          ": ",
                          value(c),
                          " is for replicas.exchange parameter_server, which is ",
                          c.exchange.info.name,
                          "; leave it out or change the exchange");
          }};
}

Rows rows_without_rule() {
  return {
      unread(
          "no_rule", "replicas.rule", [](const Chosen& c) { return c.rule; }, "asgd"),
      unread(
          "no_admission",
          "replicas.admit",
          [](const Chosen& c) { return choice_name(c.replicas.admit()); },
          "by_rule"),
      unread(
          "no_scale",
          "replicas.scale",
          [](const Chosen& c) { return choice_name(c.replicas.scale()); },
          "by_rule"),
      unread(
          "no_step",
          "replicas.step",
          [](const Chosen& c) { return choice_name(c.replicas.step()); },
          "by_rule"),
  };
}

}  // namespace

Result<void> check_replicas(const proto::Experiment& experiment) {
  if (const auto policy = chosen_weights(experiment); !policy) {
    return policy.error();
  }
  if (const proto::Exchange& exchange = experiment.replicas().exchange(); exchange.has_custom()) {
    if (const auto known = exchanges().chosen(exchange.custom(), "replicas.exchange"); !known) {
      return known.error();
    }
  }
  const Chosen c(experiment);
  if (c.exchange.info.check) {
    if (auto fits = c.exchange.info.check(experiment); !fits) {
      return fits;
    }
  }
  static const Rows common = common_rows();
  static const Rows ruled = replica_checks::rows_with_rule();
  static const Rows unruled = rows_without_rule();
  if (auto sound = check_rows(common, c); !sound) {
    return sound;
  }
  if (auto sound = check_rows(c.exchange.ruled ? ruled : unruled, c); !sound) {
    return sound;
  }
  return check_codecs(experiment);
}

}  // namespace troupe
