#include "runtime/schemes/exchanges/exchange_checks.hpp"

#include "experiment/clock.pb.h"
#include "experiment/optimizer.pb.h"
#include "experiment/pipeline.pb.h"
#include "experiment/replicas.pb.h"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/exchanges/all_reduce.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"
#include "runtime/schemes/optimizers/optimizer_scheme.hpp"
#include "runtime/schemes/policies/policy.hpp"
#include "runtime/schemes/schedules/schedule_scheme.hpp"

#include <algorithm>

namespace troupe::exchange_checks {
namespace {

using E = proto::Experiment;

/// Backup replicas: of R - b the first gradients make an update.
Result<void> check_backup(const E& e) {
  const proto::Synchronous& options = sections::replicas(e).exchange().synchronous();
  const std::int64_t backup = options.backup();
  if (backup == 0) {
    return {};
  }
  if (backup >= sections::replica_count(e)) {
    return usage_error(
        "replicas.exchange.synchronous.backup: {} of replicas.count {} leaves nobody; use "
        "less than {}",
        backup,
        sections::replica_count(e),
        sections::replica_count(e));
  }
  const auto schedule = chosen_schedule(e);
  if (sections::pipeline(e).stages() > 1 && schedule && !(*schedule)->flushed) {
    return usage_error(
        "replicas.exchange.synchronous.backup: {} drops what was computed at older weights than "
        "the newest, and under pipeline.schedule {} every gradient but the last stage's is; use "
        "0, or a flushed schedule",
        backup,
        (*schedule)->info.name);
  }
  if (reduces(e)) {
    return usage_error(
        "replicas.exchange.synchronous.backup: {} needs a server that does not wait; reduction is "
        "{}; use server",
        backup,
        proto::Synchronous::Reduction_Name(options.reduction()));
  }
  return {};
}

/// Numbers that two of diloco's modes have; 0 in the others.
std::int64_t quorum_of(const proto::DilocoMode& mode) {
  return mode.has_decoupled() ? mode.decoupled().quorum() : mode.quorum().quorum();
}

std::int64_t overlap_of(const proto::DilocoMode& mode) {
  if (mode.has_decoupled()) {
    return mode.decoupled().overlap();
  }
  return mode.has_streaming() ? mode.streaming().overlap() : 0;
}

/// "local", "global": whose delay was set without a momentum; or "".
std::string delay_without_momentum(const proto::Halos& halos) {
  if (halos.local().momentum() == 0 && halos.local().delay() != proto::HalosLocal().delay()) {
    return "local";
  }
  const proto::HalosGlobal& global = halos.global();
  return global.momentum() == 0 && global.delay() != proto::HalosGlobal().delay() ? "global" : "";
}

}  // namespace

Error server_makes_the_step(const E& e, std::string_view server) {
  return usage_error(
      "pipeline.weights: {} changes the step of each chunk by its own delay, and with {} the "
      "server makes the step; {}; or an exchange whose replicas train by themselves (averaging, "
      "easgd, diloco, wsp)",
      (*chosen_weights(e))->info.name,
      server,
      use_weights([](const PolicyScheme& w) { return !w.step; }));
}

std::string exchange_time_key(const E& e) {
  const auto& seconds = sections::clock(e).exchange().seconds();
  if (std::any_of(seconds.begin(), seconds.end(), [](double s) { return s > 0; })) {
    return "clock.exchange";
  }
  return sections::clock(e).bandwidth() > 0 ? "clock.bandwidth" : "";
}

Result<void> synchronous(const E& e) {
  TROUPE_TRY(check_backup(e));
  if (sections::replicas(e).shards() > 1 && reduces(e)) {
    return usage_error(
        "replicas.shards: {} slices are for as many servers, and an all-reduce "
        "(synchronous.reduction other than server) has none; use 1",
        sections::replicas(e).shards());
  }
  const std::string time = exchange_time_key(e);
  if (sections::replicas(e).exchange().synchronous().reduction() == proto::Synchronous::nccl &&
      !time.empty()) {
    return usage_error(
        "{}: the way of gradients that NCCL adds up (synchronous.reduction nccl) is not modelled; "
        "leave it out, or choose ring or tree",
        time);
  }
  if (!reduces(e) && sections::replica_count(e) > 1 && (*chosen_weights(e))->step) {
    return server_makes_the_step(e, "replicas.exchange synchronous");
  }
  return {};
}

Result<void> averaging(const E& e) {
  const OptimizerScheme& optimizer = optimizer_scheme(sections::optimizer(e));
  if (sections::replicas(e).exchange().averaging().state() == proto::Averaging::averaged &&
      optimizer.matrices) {
    return usage_error(
        "replicas.exchange.averaging.state: averaged needs moments that are linear in the "
        "gradients' slices; optimizer.rule is {}, use kept or reset",
        optimizer.info.name);
  }
  return {};
}

Result<void> bmuf(const E& e) {
  const double momentum = sections::replicas(e).exchange().bmuf().momentum();
  if (momentum < 0 && momentum != -1) {
    return usage_error("replicas.exchange.bmuf.momentum: {}; use -1 (for 1 - 1/R) or 0 to 0.9999",
                       momentum);
  }
  return {};
}

Result<void> diloco(const E& e) {
  const proto::Diloco& options = sections::replicas(e).exchange().diloco();
  const proto::DilocoMode& mode = options.mode();
  const std::string name = choice_name(mode);
  const std::int64_t replicas = sections::replica_count(e);
  const double activation = mode.asynchronous().activation();
  if (mode.has_asynchronous() && activation * static_cast<double>(replicas) > 1) {
    return usage_error(
        "replicas.exchange.diloco.mode.asynchronous.activation: {} is more than 1 / "
        "replicas.count, of which {} in between would be more than the whole momentum",
        activation,
        replicas);
  }
  if (activation != 0 &&
      mode.asynchronous().outer() != proto::AsynchronousDiloco::delayed_nesterov) {
    return usage_error(
        "replicas.exchange.diloco.mode.asynchronous.activation: only outer delayed_nesterov has "
        "arrivals in between; use 0");
  }
  if (quorum_of(mode) > replicas) {
    return usage_error(
        "replicas.exchange.diloco.mode.{}.quorum: {} is more than replicas.count {} and would "
        "never be met",
        name,
        quorum_of(mode),
        replicas);
  }
  if (overlap_of(mode) >= outer_period(options)) {
    return usage_error(
        "replicas.exchange.diloco.mode.{}.overlap: {} mini-batches; use less than the "
        "period, {}",
        name,
        overlap_of(mode),
        outer_period(options));
  }
  if (sections::replicas(e).shards() > 1 &&
      (mode.has_decoupled() || mode.streaming().fragments() > 0)) {
    return usage_error(
        "replicas.shards: {} slices of a chunk do not go with fragments of the whole network, "
        "each of which has servers of its own (diloco.mode.{}.fragments); use 1",
        sections::replicas(e).shards(),
        name);
  }
  return {};
}

Result<void> halos(const E& e) {
  const proto::Halos& options = sections::replicas(e).exchange().halos();
  if (options.groups() > sections::replica_count(e)) {
    return usage_error(
        "replicas.exchange.halos.groups: {} groups of replicas.count {} would be empty in part; "
        "use at most {}",
        options.groups(),
        sections::replica_count(e),
        sections::replica_count(e));
  }
  if (const std::string whose = delay_without_momentum(options); !whose.empty()) {
    return usage_error(
        "replicas.exchange.halos.{}.delay: it is momentum that is delayed, and there it is 0; "
        "leave it out",
        whose);
  }
  const int listed = sections::clock(e).between_servers().seconds_size();
  if (listed > 1 && listed != options.groups()) {
    return usage_error(
        "clock.between_servers.seconds: one number for all groups, or one for each of the {}; "
        "there are {}",
        options.groups(),
        listed);
  }
  return {};
}

Result<void> gossip(const E& e) {
  const proto::Gossip& options = sections::replicas(e).exchange().gossip();
  const auto is_for_groups = [&](const char* key, std::int64_t value) {
    return usage_error(
        "replicas.exchange.gossip.{}: {} is for graph groups, which is {}; leave it out",
        key,
        value,
        proto::Gossip::Graph_Name(options.graph()));
  };
  if (options.graph() == proto::Gossip::groups) {
    return {};
  }
  if (options.group() != proto::Gossip().group()) {
    return is_for_groups("group", options.group());
  }
  return options.rounds() == 0 ? Result<void>() : is_for_groups("rounds", options.rounds());
}

Result<void> sandblaster(const E& e) {
  if (sections::replicas(e).split() != proto::Replicas::interleaved) {
    return usage_error(
        "replicas.split: sandblaster's replicas pull portions, and have no data of their own; "
        "use interleaved");
  }
  if (const std::string time = exchange_time_key(e); !time.empty()) {
    return usage_error(
        "{}: the way of sandblaster's vectors is not modelled, only the work on its portions; "
        "leave it out",
        time);
  }
  return {};
}

}  // namespace troupe::exchange_checks
