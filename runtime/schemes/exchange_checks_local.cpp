// What the exchanges whose replicas make steps of their own between two outer ones go with: diloco, halos.
#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/schemes/constraint.hpp"
#include "runtime/schemes/exchange.hpp"
#include "runtime/schemes/exchange_checks.hpp"

namespace troupe::exchange_checks {
namespace {

using E = proto::Experiment;
using Rows = Constraints<E>;

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
      {.name = "momentum_in_between",
       .keys = {"replicas.exchange.diloco.mode.asynchronous.activation"},
       .holds =
           [](const E& e) {
             const proto::AsynchronousDiloco& mode = diloco_of(e).mode().asynchronous();
             return mode.activation() == 0 ||
                    mode.outer() == proto::AsynchronousDiloco::delayed_nesterov;
           },
       .says = always("replicas.exchange.diloco.mode.asynchronous.activation: only outer "
                      "delayed_nesterov has arrivals in between; right is 0")},
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

/// "local", "global": whose delay was set without a momentum; or "".
std::string delay_without_momentum(const E& e) {
  const proto::Halos& halos = halos_of(e);
  if (halos.local().momentum() == 0 && halos.local().delay() != proto::HalosLocal().delay()) {
    return "local";
  }
  const proto::HalosGlobal& global = halos.global();
  return global.momentum() == 0 && global.delay() != proto::HalosGlobal().delay() ? "global" : "";
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
      {.name = "delay_of_momentum",
       .keys = {"replicas.exchange.halos.local.delay", "replicas.exchange.halos.global.delay"},
       .holds = [](const E& e) { return delay_without_momentum(e).empty(); },
       .says =
           [](const E& e) {
             return concat(
                 "replicas.exchange.halos.",
                 delay_without_momentum(e),
                 ".delay: it is momentum that is delayed, and there it is 0; leave it out");
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

}  // namespace

Result<void> diloco(const E& e) {
  static const Rows rows = diloco_rows();
  return check_rows(rows, e);
}

Result<void> halos(const E& e) {
  static const Rows rows = halos_rows();
  return check_rows(rows, e);
}

}  // namespace troupe::exchange_checks
