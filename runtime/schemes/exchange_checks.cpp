#include "runtime/schemes/exchange_checks.hpp"

#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/schemes/constraint.hpp"
#include "runtime/schemes/exchange.hpp"
#include "runtime/schemes/optimizer_scheme.hpp"
#include "runtime/schemes/policy.hpp"
#include "runtime/schemes/schedule_scheme.hpp"

#include <algorithm>

namespace troupe::exchange_checks {
namespace {

using E = proto::Experiment;
using Rows = Constraints<E>;

const proto::Synchronous& synchronous_of(const E& e) {
  return e.replicas().exchange().synchronous();
}

bool reduces(const E& e) {
  return synchronous_of(e).reduction() != proto::Synchronous::server;
}

/// Stages that work at older weights than the newest.
bool has_late_stages(const E& e) {
  const auto schedule = chosen_schedule(e);
  return e.pipeline().stages() > 1 && schedule && !(*schedule)->flushed;
}

/// Backup replicas: of R - b the first gradients make an update.
Rows backup_rows() {
  return {
      {.name = "backup_leaves_somebody",
       .keys = {"replicas.exchange.synchronous.backup"},
       .holds =
           [](const E& e) {
             return synchronous_of(e).backup() == 0 ||
                    synchronous_of(e).backup() < e.replicas().count();
           },
       .says =
           [](const E& e) {
             return concat("replicas.exchange.synchronous.backup: ",
                           synchronous_of(e).backup(),
                           " of replicas.count ",
                           e.replicas().count(),
                           " leaves nobody; right is less than ",
                           e.replicas().count());
           }},
      {.name = "backup_at_the_newest_weights",
       .keys = {"replicas.exchange.synchronous.backup"},
       .holds = [](const E& e) { return synchronous_of(e).backup() == 0 || !has_late_stages(e); },
       .says =
           [](const E& e) {
             return concat("replicas.exchange.synchronous.backup: ",
                           synchronous_of(e).backup(),
                           " drops what was computed at older weights than the newest, and under "
                           "pipeline.schedule ",
                           (*chosen_schedule(e))->info.name,
                           " every gradient but the last stage's is; right is 0, or a flushed "
                           "schedule");
           }},
      {.name = "backup_with_a_server",
       .keys = {"replicas.exchange.synchronous.backup"},
       .holds = [](const E& e) { return synchronous_of(e).backup() == 0 || !reduces(e); },
       .says =
           [](const E& e) {
             return concat("replicas.exchange.synchronous.backup: ",
                           synchronous_of(e).backup(),
                           " needs a server that does not wait; reduction is ",
                           proto::Synchronous::Reduction_Name(synchronous_of(e).reduction()),
                           ", right is server");
           }},
  };
}

Rows synchronous_rows() {
  Rows rows = backup_rows();
  rows.push_back({.name = "all_reduce_has_no_shards",
                  .keys = {"replicas.shards"},
                  .holds = [](const E& e) { return e.replicas().shards() == 1 || !reduces(e); },
                  .says =
                      [](const E& e) {
                        return concat(
                            "replicas.shards: ",
                            e.replicas().shards(),
                            " slices are for as many servers, and an all-reduce "
                            "(synchronous.reduction other than server) has none; right is 1");
                      }});
  rows.push_back({.name = "nccl_takes_no_modelled_time",
                  .keys = {"clock.exchange", "clock.bandwidth"},
                  .holds =
                      [](const E& e) {
                        return synchronous_of(e).reduction() != proto::Synchronous::nccl ||
                               exchange_time_key(e).empty();
                      },
                  .says =
                      [](const E& e) {
                        return exchange_time_key(e) +
                               ": the way of gradients that NCCL adds up "
                               "(synchronous.reduction nccl) is not modelled; leave it out, or "
                               "choose ring or tree";
                      }});
  rows.push_back({.name = "synchronous_step_by_the_server",
                  .keys = {"pipeline.weights"},
                  .holds =
                      [](const E& e) {
                        return reduces(e) || e.replicas().count() == 1 ||
                               !(*chosen_weights(e))->step;
                      },
                  .says =
                      [](const E& e) {
                        return server_makes_the_step(e, "replicas.exchange synchronous");
                      }});
  return rows;
}

Rows averaging_rows() {
  return {
      {.name = "averaged_moments",
       .keys = {"replicas.exchange.averaging.state"},
       .holds =
           [](const E& e) {
             return e.replicas().exchange().averaging().state() != proto::Averaging::averaged ||
                    !optimizer_scheme(e.optimizer()).matrices;
           },
       .says =
           [](const E& e) {
             return concat(
                 "replicas.exchange.averaging.state: averaged needs moments that are linear in the "
                 "gradients' slices; optimizer.rule is ",
                 optimizer_scheme(e.optimizer()).info.name,
                 ", right are kept and reset");
           }},
  };
}

Rows bmuf_rows() {
  return {
      {.name = "block_momentum",
       .keys = {"replicas.exchange.bmuf.momentum"},
       .holds =
           [](const E& e) {
             const double momentum = e.replicas().exchange().bmuf().momentum();
             return momentum >= 0 || momentum == -1;
           },
       .says =
           [](const E& e) {
             return concat("replicas.exchange.bmuf.momentum: ",
                           e.replicas().exchange().bmuf().momentum(),
                           "; right are -1 (for 1 - 1/R) and 0 to 0.9999");
           }},
  };
}

Rows gossip_rows() {
  return {
      {.name = "group_of_a_graph",
       .keys = {"replicas.exchange.gossip.group"},
       .holds =
           [](const E& e) {
             const proto::Gossip& gossip = e.replicas().exchange().gossip();
             return gossip.graph() == proto::Gossip::groups ||
                    gossip.group() == proto::Gossip().group();
           },
       .says =
           [](const E& e) {
             const proto::Gossip& gossip = e.replicas().exchange().gossip();
             return concat("replicas.exchange.gossip.group: ",
                           gossip.group(),
                           " is for graph groups, which is ",
                           proto::Gossip::Graph_Name(gossip.graph()),
                           "; leave it out");
           }},
      {.name = "rounds_of_a_graph",
       .keys = {"replicas.exchange.gossip.rounds"},
       .holds =
           [](const E& e) {
             const proto::Gossip& gossip = e.replicas().exchange().gossip();
             return gossip.graph() == proto::Gossip::groups || gossip.rounds() == 0;
           },
       .says =
           [](const E& e) {
             const proto::Gossip& gossip = e.replicas().exchange().gossip();
             return concat("replicas.exchange.gossip.rounds: ",
                           gossip.rounds(),
                           " is for graph groups, which is ",
                           proto::Gossip::Graph_Name(gossip.graph()),
                           "; leave it out");
           }},
  };
}

Rows sandblaster_rows() {
  return {
      {.name = "portions_instead_of_a_split",
       .keys = {"replicas.split"},
       .holds = [](const E& e) { return e.replicas().split() == proto::Replicas::interleaved; },
       .says = always("replicas.split: sandblaster's replicas pull portions, and have no data of "
                      "their own; right is interleaved")},
      {.name = "vectors_take_no_time",
       .keys = {"clock.exchange", "clock.bandwidth"},
       .holds = [](const E& e) { return exchange_time_key(e).empty(); },
       .says =
           [](const E& e) {
             return exchange_time_key(e) +
                    ": the way of sandblaster's vectors is not modelled, only the work on its "
                    "portions; leave it out";
           }},
  };
}

}  // namespace

std::string server_makes_the_step(const E& e, std::string_view server) {
  return concat("pipeline.weights: ",
                (*chosen_weights(e))->info.name,
                " changes the step of each chunk by its own delay, and with ",
                server,
                " the server makes the step; ",
                use_weights([](const PolicyScheme& w) { return !w.step; }),
                "; or an exchange whose replicas train by themselves (averaging, easgd, diloco, "
                "wsp)");
}

std::string exchange_time_key(const E& e) {
  const auto& seconds = e.clock().exchange().seconds();
  if (std::any_of(seconds.begin(), seconds.end(), [](double s) { return s > 0; })) {
    return "clock.exchange";
  }
  return e.clock().bandwidth() > 0 ? "clock.bandwidth" : "";
}

Result<void> synchronous(const E& e) {
  static const Rows rows = synchronous_rows();
  return check_rows(rows, e);
}

Result<void> averaging(const E& e) {
  static const Rows rows = averaging_rows();
  return check_rows(rows, e);
}

Result<void> bmuf(const E& e) {
  static const Rows rows = bmuf_rows();
  return check_rows(rows, e);
}

Result<void> gossip(const E& e) {
  static const Rows rows = gossip_rows();
  return check_rows(rows, e);
}

Result<void> sandblaster(const E& e) {
  static const Rows rows = sandblaster_rows();
  return check_rows(rows, e);
}

}  // namespace troupe::exchange_checks
