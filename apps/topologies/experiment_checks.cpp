// The rows that an experiment has to pass before anything is opened.
#include "apps/topologies/checks.hpp"
#include "apps/topologies/copies.hpp"
#include "apps/topologies/exchange.hpp"
#include "apps/topologies/extension.hpp"
#include "apps/topologies/hogwild.hpp"
#include "apps/topologies/hosts.hpp"
#include "apps/topologies/placement_names.hpp"
#include "apps/topologies/probe.hpp"
#include "apps/topologies/sandblaster.hpp"
#include "apps/topologies/width.hpp"
#include "experiment.pb.h"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "runtime/data/registry.hpp"
#include "runtime/model/registry.hpp"
#include "runtime/schemes/decoupled/decoupled.hpp"
#include "runtime/schemes/exchanges/all_reduce.hpp"
#include "runtime/schemes/optimizers/optimizer_scheme.hpp"
#include "runtime/schemes/schedules/schedule_scheme.hpp"

#include <algorithm>
#include <string>

namespace troupe {
namespace {

using E = proto::Experiment;
using Rows = Constraints<E>;

// -- placement

std::int64_t all_stages(const E& e) {
  return stage_actors(e) * e.replicas().count();
}

bool is_listed_once_or(std::int64_t each, int listed) {
  return listed == 1 || listed == each;
}

Result<void> check_devices(const E& e) {
  for (const std::string& name : e.placement().devices()) {
    const auto device = parse_device(name);
    const Result<void> there = device ? check_available(*device) : device.error();
    if (!there) {
      return Error{ErrorKind::usage, "placement.devices: " + there.error().message};
    }
  }
  return {};
}

Result<void> check_precisions(const E& e) {
  for (const Device device : all_devices(e)) {
    if (auto able = check_precision(device, precision_of(e)); !able) {
      return Error{ErrorKind::usage, "placement.precision: " + able.error().message};
    }
  }
  return {};
}

/// Parts choose experts each by itself, and near a tie another rounding would choose another one.
Result<void> check_parts_of_mixture(const E& e) {
  if (e.pipeline().width() == 1 || !has_mixture(e)) {
    return {};
  }
  const std::vector<DeviceInfo> there = devices();
  const auto model_of = [&](const Device device) {
    const auto found = std::ranges::find(there, device, &DeviceInfo::device);
    return found != there.end() ? found->name : to_string(device);
  };
  const std::vector<Device> all = all_devices(e);
  const auto other = std::ranges::find_if(
      all, [&](const Device device) { return model_of(device) != model_of(all.front()); });
  return other == all.end()
             ? Result<void>()
             : usage_error(
                   "placement.devices: the parts of a mixture of experts have to compute alike, "
                   "and {} and {} do not; use devices of one kind, or pipeline.width 1",
                   to_string(all.front()),
                   to_string(*other));
}

bool on_gpu(const E& e) {
  const auto& names = e.placement().devices();
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    const auto device = parse_device(name);
    return device && device->kind == DeviceKind::cuda;
  });
}

Rows placement_checks() {
  return {
      {"devices_of_all_stages",
       [](const E& e) {
         const int listed = e.placement().devices_size();
         if (is_listed_once_or(stage_actors(e), listed) || listed == all_stages(e)) {
           return std::string();
         }
         const std::int64_t stages = stage_actors(e);
         return fill_in(
             "placement.devices: one device for all stages, or one for each of the {}{}; there are "
             "{}",
             stages,
             all_stages(e) == stages ? ""
                                     : fill_in(", or of the {} of all replicas", all_stages(e)),
             e.placement().devices_size());
       }},
      {"devices_that_are_there", check_devices},
      {"nccl_between_gpus",
       [](const E& e) {
         return check_group_sums(e, true);
       }},
      {"names_on_processes", check_placement_names},
      {"precision_of_the_devices", check_precisions},
      {"quadratic_on_cpu",
       [](const E& e) { return !e.model().has_quadratic() || !on_gpu(e); },
       "placement.devices: quadratic runs on cpu only"},
      {"parts_of_a_mixture_alike", check_parts_of_mixture},
      {"lenet5_without_cudnn_on_cpu",
       [](const E& e) { return !e.model().has_lenet5() || !on_gpu(e) || !cudnn_version().empty(); },
       "placement.devices: lenet5 runs on cpu only in this build, which has no cuDNN"},
  };
}

// -- pipeline

Result<void> check_schedule_chosen(const E& e) {
  const auto scheme = chosen_schedule(e);
  return scheme ? Result<void>() : scheme.error();
}

Result<void> check_schedule_keys(const E& e) {
  auto options = schedule_options(e);
  TROUPE_TRY(options);
  options->synchronous_batches = synchronous_epochs(e) > 0 ? 1 : 0;  // how many tells the data
  return check_schedule_options(*options);
}

bool mixes(const E& e) {
  return e.pipeline().partition() == proto::Pipeline::mixed && e.pipeline().stages() > 1;
}

Rows partition_checks() {
  return {
      {"profiled_or_stage_of",
       [](const E& e) {
         const proto::Pipeline& p = e.pipeline();
         return p.partition() != proto::Pipeline::profiled || !p.cut().empty() ||
                        p.stage_of().empty()
                    ? ""
                    : "pipeline.partition: profiled makes all chunks alike, not all stages, so "
                      "that it does not go with pipeline.stage_of; use mixed, which finds both, or "
                      "set pipeline.cut";
       }},
      {"mixed_or_schedule",
       [](const E& e) {
         return !mixes(e) || !(*chosen_schedule(e))->places_chunks()
                    ? ""
                    : fill_in(
                          "pipeline.partition: mixed says which stage has which chunk, and so does "
                          "pipeline.schedule {}; choose another schedule, or profiled",
                          (*chosen_schedule(e))->info.name);
       }},
      {"mixed_finds_both",
       [](const E& e) {
         return !mixes(e) || e.pipeline().cut().empty() == e.pipeline().stage_of().empty()
                    ? ""
                    : fill_in(
                          "pipeline.partition: mixed finds pipeline.cut and pipeline.stage_of "
                          "together; there is only pipeline.{}, so set both or none, or use flops",
                          e.pipeline().cut().empty() ? "stage_of" : "cut");
       }},
  };
}

Rows stage_copies_checks() {
  return only_where<E>(
      [](const E& e) { return !e.pipeline().copies().empty(); },
      {
          {"copies_of_stashed_weights",
           [](const E& e) { return e.pipeline().weights().has_stash(); },
           "pipeline.copies: stages that take turns are updated while others of their mini-batches "
           "are under way; use pipeline.weights stash"},
          {"copies_in_one_pipe",
           [](const E& e) {
             return e.replicas().count() == 1 && shared_by(e) != Shared::buffer &&
                    shared_by(e) != Shared::own && decoupled_of(e) == nullptr &&
                    e.record().angle_every() == 0;
           },
           "pipeline.copies: they are for one replica, trained by backpropagation; use "
           "replicas.count 1, no hogwild or sandblaster, decoupled none and record.angle_every 0"},
          {"copies_without_servers",
           [](const E& e) { return e.replicas().count() != 1 || !has_servers(e); },
           "pipeline.copies: a round of mini-batches is one update, and servers would hear of each "
           "mini-batch; use replicas.exchange parameter_server, of which one replica needs none"},
          {"copies_on_cpu",
           [](const E& e) { return !on_gpu(e); },
           "pipeline.copies: they run on cpu only, where all share the weights in one memory"},
          {"copies_of_chosen_chunks",
           [](const E& e) { return !mixes(e); },
           "pipeline.partition: mixed gives stages several chunks, and pipeline.copies chunks "
           "several stages; use flops or profiled"},
      });
}

Rows both_ways_checks() {
  return only_where<E>(
      [](const E& e) {
        const auto scheme = chosen_schedule(e);
        return scheme && (*scheme)->opposite;
      },
      {
          {"both_ways_by_backpropagation",
           [](const E& e) {
             return decoupled_of(e) == nullptr && e.record().angle_every() == 0 &&
                    e.pipeline().width() == 1;
           },
           "pipeline.schedule: dual_pipe is for whole chunks, trained by backpropagation; use "
           "pipeline.width 1, decoupled none and record.angle_every 0"},
          {"both_ways_on_cpu",
           [](const E& e) { return !on_gpu(e); },
           "pipeline.schedule: dual_pipe runs on cpu only, where both stages of a chunk share its "
           "weights in one memory"},
      });
}

Rows batch_checks() {
  return {
      {"micro_batches_of_a_batch",
       [](const E& e) {
         return e.data().batch_size() % e.pipeline().micro_batches() == 0
                    ? ""
                    : fill_in("pipeline.micro_batches: {} does not divide data.batch_size {}",
                              e.pipeline().micro_batches(),
                              e.data().batch_size());
       }},
      {"growth_of_one_replica",
       [](const E& e) {
         return e.data().growth().at().empty() ||
                (e.replicas().count() == 1 && batches_per_update(e) == 1);
       },
       "data.growth: mini-batches grow with one replica only, each of them an update"},
      {"growth_in_order", check_growth},
      {"something_to_learn",
       [](const E& e) {
         return !e.data().has_none() || (*network_scheme(e.model()))->objective
                    ? ""
                    : fill_in("data: none has nothing to learn for model {}; it is for quadratic",
                              choice_name(e.model()));
       }},
  };
}

// -- clock

/// A list with one number for all replicas, or one for each.
Constraint<E> for_replicas(std::string_view name, std::string_view key, int (*listed)(const E&)) {
  return {
      name, [key, listed](const E& e) {
        return listed(e) == 0 || is_listed_once_or(e.replicas().count(), listed(e))
                   ? ""
                   : fill_in(
                         "{}: one number for all replicas, or one for each of the {}; there are {}",
                         key,
                         e.replicas().count(),
                         listed(e));
      }};
}

Rows replica_times_checks() {
  return {
      for_replicas("slowness_of_all_replicas",
                   "clock.workers.slowness",
                   [](const E& e) { return e.clock().workers().slowness_size(); }),
      for_replicas("hold_back_of_all_replicas",
                   "clock.workers.hold_back",
                   [](const E& e) { return e.clock().workers().hold_back_size(); }),
      for_replicas("exchange_of_all_replicas",
                   "clock.exchange.seconds",
                   [](const E& e) { return e.clock().exchange().seconds_size(); }),
      {"straggler_among_replicas",
       [](const E& e) {
         const proto::Straggler& straggler = e.clock().workers().straggler();
         return !straggler.has_permanent() || straggler.permanent().replica() < e.replicas().count()
                    ? ""
                    : fill_in(
                          "clock.workers.straggler.permanent.replica: {} of replicas.count {}, "
                          "which are numbered from 0",
                          e.clock().workers().straggler().permanent().replica(),
                          e.replicas().count());
       }},
  };
}

// -- stop

bool has_length(const E& e) {
  return e.stop().updates() > 0 || e.stop().epochs() > 0;
}

bool asks_for_best(const E& e) {
  return e.stop().patience() > 0 || e.record().best();
}

Rows stop_checks() {
  return {
      {"an_end",
       [](const E& e) {
         return has_length(e) || e.stop().seconds() != 0 || e.stop().target_accuracy() != 0;
       },
       "stop: the run would never end; set stop.updates, stop.epochs, stop.seconds or "
       "stop.target_accuracy"},
      {"accuracy_is_evaluated",
       [](const E& e) { return e.stop().target_accuracy() == 0 || e.record().evaluate(); },
       "stop.target_accuracy: needs record.evaluate and data with classes"},
      {"the_best_is_evaluated",
       [](const E& e) { return !asks_for_best(e) || e.record().evaluate(); },
       "stop.patience: it and record.best need record.evaluate"},
      {"the_best_of_pinned_weights",
       [](const E& e) {
         return !asks_for_best(e) || !(shared_by(e) == Shared::own || e.data().has_sparse());
       },
       "stop.patience: it and record.best do not go with sandblaster or sparse rows; use 0 "
       "and false"},
      {"each_replica_has_weights",
       [](const E& e) {
         return e.record().each_replica() != proto::Record::always ||
                (e.record().evaluate() && e.replicas().count() > 1 && exchange_of(e).peer);
       },
       "record.each_replica: always is for several replicas that are evaluated and share no server "
       "(gossip, sgp, ad_psgd, strom)"},
      {"a_length_for_the_rate",
       [](const E& e) {
         const proto::RateSchedule& rates = e.optimizer().schedule();
         return has_length(e) ||
                        !(rates.has_cosine() || rates.has_polynomial() || rates.has_milestones())
                    ? ""
                    : "optimizer.schedule: cosine, polynomial and milestones follow the length of "
                      "the run, so stop.updates or stop.epochs must be set";
       }},
  };
}

Rows all_checks() {
  Rows all = placement_checks();
  const auto add = [&](const Rows& rows) {
    all.insert(all.end(), rows.begin(), rows.end());
  };
  // What is chosen is known from here on.
  add({{"schedule", check_schedule_chosen},
       {"optimizer", check_optimizer},
       {"model", check_model},
       {"data", check_data},
       {"replicas", check_replicas},
       {"weights", check_weights},
       {"decoupled", check_decoupled},
       {"schedule_keys", check_schedule_keys}});
  add(partition_checks());
  add(stage_copies_checks());
  add(both_ways_checks());
  add(batch_checks());
  add(replica_times_checks());
  add(fault_checks());
  add(copy_checks());
  add(stop_checks());
  add(probe_checks());
  add({{"extension", check_extension}});
  add(sparse_hogwild_checks());
  add(sandblaster_checks());
  add(width_checks());
  return all;
}

}  // namespace

bool has_mixture(const E& e) {
  return e.model().llama().experts() > 0 ||
         std::ranges::any_of(e.model().layers().layer(),
                             [](const proto::LayerSpec& layer) { return layer.has_mixture(); });
}

const Constraints<proto::Experiment>& experiment_checks() {
  static const Constraints<E> rows = all_checks();
  return rows;
}

}  // namespace troupe
