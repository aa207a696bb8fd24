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

const proto::Diloco& diloco_of(const E& e) {
  return e.replicas().exchange().diloco();
}

/// Of the modes that have one; else 0.
std::int64_t quorum_of(const E& e) {
  const proto::DilocoMode& mode = diloco_of(e).mode();
  return mode.has_decoupled() ? mode.decoupled().quorum() : mode.quorum().quorum();
}

std::int64_t overlap_of(const E& e) {
  const proto::DilocoMode& mode = diloco_of(e).mode();
  if (mode.has_decoupled()) {
    return mode.decoupled().overlap();
  }
  return mode.has_streaming() ? mode.streaming().overlap() : 0;
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
                        return concat("replicas.shards: ",
                                      e.replicas().shards(),
                                      " slices are for as many servers, and an all-reduce "
                                      "(synchronous.reduction ring or tree) has none; right is 1");
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

Rows diloco_rows() {
  return {
      {.name = "momentum_between_arrivals",
       .keys = {"replicas.exchange.diloco.mode.asynchronous.activation"},
       .holds =
           [](const E& e) {
             const proto::DilocoMode& mode = diloco_of(e).mode();
             return !mode.has_asynchronous() ||
                    mode.asynchronous().activation() * static_cast<double>(e.replicas().count()) <=
                        1;
           },
       .says =
           [](const E& e) {
             return concat("replicas.exchange.diloco.mode.asynchronous.activation: ",
                           diloco_of(e).mode().asynchronous().activation(),
                           " is more than 1 / replicas.count, of which ",
                           e.replicas().count(),
                           " in between would be more than the whole momentum");
           }},
      {.name = "quorum_that_can_be_met",
       .keys = {"replicas.exchange.diloco.mode.quorum.quorum",
                "replicas.exchange.diloco.mode.decoupled.quorum"},
       .holds = [](const E& e) { return quorum_of(e) <= e.replicas().count(); },
       .says =
           [](const E& e) {
             return concat("replicas.exchange.diloco.mode.",
                           choice_name(diloco_of(e).mode()),
                           ".quorum: ",
                           quorum_of(e),
                           " is more than replicas.count ",
                           e.replicas().count(),
                           " and would never be met");
           }},
      {.name = "overlap_within_a_period",
       .keys = {"replicas.exchange.diloco.mode.streaming.overlap",
                "replicas.exchange.diloco.mode.decoupled.overlap"},
       .holds = [](const E& e) { return overlap_of(e) < outer_period(diloco_of(e)); },
       .says =
           [](const E& e) {
             return concat("replicas.exchange.diloco.mode.",
                           choice_name(diloco_of(e).mode()),
                           ".overlap: ",
                           overlap_of(e),
                           " mini-batches; right is less than the period, ",
                           outer_period(diloco_of(e)));
           }},
      {.name = "fragments_or_shards",
       .keys = {"replicas.shards",
                "replicas.exchange.diloco.mode.streaming.fragments",
                "replicas.exchange.diloco.mode.decoupled.fragments"},
       .holds =
           [](const E& e) {
             const proto::DilocoMode& mode = diloco_of(e).mode();
             return e.replicas().shards() == 1 ||
                    !(mode.has_decoupled() || mode.streaming().fragments() > 0);
           },
       .says =
           [](const E& e) {
             return concat("replicas.shards: ",
                           e.replicas().shards(),
                           " slices of a chunk do not go with fragments of the whole network, each "
                           "of which has servers of its own (diloco.mode.",
                           choice_name(diloco_of(e).mode()),
                           ".fragments); right is 1");
           }},
  };
}

const proto::Halos& halos_of(const E& e) {
  return e.replicas().exchange().halos();
}

Rows halos_rows() {
  return {
      {.name = "groups_of_somebody",
       .keys = {"replicas.exchange.halos.groups"},
       .holds = [](const E& e) { return halos_of(e).groups() <= e.replicas().count(); },
       .says =
           [](const E& e) {
             return concat("replicas.exchange.halos.groups: ",
                           halos_of(e).groups(),
                           " groups of replicas.count ",
                           e.replicas().count(),
                           " would be empty in part; right is at most ",
                           e.replicas().count());
           }},
      {.name = "times_of_all_groups",
       .keys = {"clock.between_servers.seconds"},
       .holds =
           [](const E& e) {
             const int listed = e.clock().between_servers().seconds_size();
             return listed <= 1 || listed == halos_of(e).groups();
           },
       .says =
           [](const E& e) {
             return concat(
                 "clock.between_servers.seconds: one number for all groups, or one for "
                 "each of the ",
                 halos_of(e).groups(),
                 "; there are ",
                 e.clock().between_servers().seconds_size());
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

Result<void> diloco(const E& e) {
  static const Rows rows = diloco_rows();
  return check_rows(rows, e);
}

Result<void> halos(const E& e) {
  static const Rows rows = halos_rows();
  return check_rows(rows, e);
}

Result<void> sandblaster(const E& e) {
  static const Rows rows = sandblaster_rows();
  return check_rows(rows, e);
}

}  // namespace troupe::exchange_checks
