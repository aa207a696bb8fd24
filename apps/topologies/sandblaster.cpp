#include "apps/topologies/sandblaster.hpp"

#include "actors/casts/sandblaster/coordinator.hpp"
#include "actors/casts/sandblaster/portion_worker.hpp"
#include "actors/casts/sandblaster/vector_shard.hpp"
#include "experiment.pb.h"
#include "kernels/stream.hpp"
#include "kernels/wording.hpp"

#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace troupe {
namespace {

using E = proto::Experiment;

/// A key of `optimizer` that is not at its default, or "".
std::string changed_key(const proto::Optimizer& o) {
  const proto::Optimizer usual;
  for (const auto& [key, changed] :
       {std::pair{"rule", o.rule() != usual.rule()},
        std::pair{"learning_rate", o.learning_rate() != usual.learning_rate()},
        std::pair{"momentum", o.momentum() != usual.momentum()},
        std::pair{"beta2", o.beta2() != usual.beta2()},
        std::pair{"epsilon", o.epsilon() != usual.epsilon()},
        std::pair{"weight_decay", o.weight_decay() != usual.weight_decay()},
        std::pair{"clip_norm", o.clip_norm() != usual.clip_norm()},
        std::pair{"schedule", !o.schedule().has_constant()},
        std::pair{"warm_up", o.warm_up() != usual.warm_up()},
        std::pair{"warm_up_from", o.warm_up_from() != usual.warm_up_from()}}) {
    if (changed) {
      return key;
    }
  }
  return "";
}

bool is_sandblaster(const E& e) {
  return shared_by(e) == Shared::own;
}

bool is_run_of_sandblaster(const Blueprint& b) {
  return is_sandblaster(b.experiment);
}

}  // namespace

Constraints<proto::Experiment> sandblaster_checks() {
  return only_where<E>(
      is_sandblaster,
      {
          {"sandblaster_in_one_stage",
           [](const E& e) {
             return e.pipeline().stages() == 1 && e.pipeline().micro_batches() == 1;
           },
           "pipeline: a sandblaster replica is one stage, and "
           "replicas.exchange.sandblaster.portions cut its batch; stages and micro_batches are 1"},
          {"sandblaster_on_cpu",
           [](const E& e) { return all_devices(e).front().kind == DeviceKind::cpu; },
           "placement.devices: sandblaster runs on cpu only"},
          {"sandblaster_without_rate",
           [](const E& e) {
             return e.replicas().rate_factor() == 0 || e.replicas().rate_factor() == 1;
           },
           "replicas.rate_factor: L-BFGS makes sandblaster's steps, and has no learning rate; "
           "leave it at 0"},
          {"sandblaster_without_optimizer",
           [](const E& e) {
             const std::string key = changed_key(e.optimizer());
             return key.empty() ? ""
                                : fill_in(
                                      "optimizer.{}: L-BFGS makes sandblaster's steps, and reads "
                                      "nothing of optimizer; leave all of it at its defaults",
                                      key);
           }},
      });
}

Constraints<Blueprint> sandblaster_data_checks() {
  return only_where<Blueprint>(
      is_run_of_sandblaster,
      {
          {"sandblaster_of_all_the_data",
           [](const Blueprint& b) {
             const std::int64_t samples = b.data->size(Split::train);
             const std::int64_t batch = b.experiment->data().batch_size();
             return batch == samples ? ""
                                     : fill_in(
                                           "data.batch_size: sandblaster's batch is all of the "
                                           "training data; set it to {} (it is {})",
                                           samples,
                                           batch);
           }},
          {"sandblaster_portions_with_samples",
           [](const Blueprint& b) {
             const std::int64_t samples = b.data->size(Split::train);
             const std::int64_t portions =
                 b.experiment->replicas().exchange().sandblaster().portions();
             return portions <= samples ? ""
                                        : fill_in(
                                              "replicas.exchange.sandblaster.portions: {} is more "
                                              "than the {} training samples",
                                              portions,
                                              samples);
           }},
      });
}

Constraints<Blueprint> sandblaster_chunk_checks() {
  return only_where<Blueprint>(
      is_run_of_sandblaster,
      {
          {"sandblaster_in_one_chunk",
           [](const Blueprint& b) {
             return b.chunks.size() == 1
                        ? ""
                        : fill_in(
                              "pipeline: a sandblaster replica has the whole network in one chunk, "
                              "and pipeline.schedule or pipeline.stage_of make {} of it; use "
                              "another schedule, and no stage_of",
                              b.chunks.size());
           }},
          {"sandblaster_without_batch_norm",
           [](const Blueprint& b) { return b.chunks.front()->buffers().empty(); },
           "model: sandblaster needs a loss that is a function of weights and samples alone; batch "
           "norm looks at the whole portion"},
      });
}

std::vector<ChunkTimes> sandblaster_times(const Blueprint& b) {
  const proto::Experiment& e = b.experiment;
  const Flops f = b.chunks.front()->flops();
  const double rows = static_cast<double>(e.data().batch_size()) /
                      static_cast<double>(e.replicas().exchange().sandblaster().portions());
  auto times = mean_times(
      e.clock(), {{f.forward * rows, f.input_gradient * rows, f.weight_gradient * rows}}, {0});
  TROUPE_CHECK(times, "the blueprint has checked the clock");
  return *times;
}

Cast build_sandblaster(const Blueprint& b) {
  const proto::Experiment& e = b.experiment;
  const proto::Sandblaster& options = e.replicas().exchange().sandblaster();
  Stream stream(Device{});
  std::vector<Tensor> slices = starting_slices(stream, b, 0);

  // Ids: coordinator, shards, workers. Each has a thread.
  const Ref<CoordinatorRole> coordinator{0};
  std::vector<Ref<VectorShardRole>> shards;
  for (std::size_t s = 0; s < slices.size(); ++s) {
    shards.push_back({static_cast<ActorId>(1 + s)});
  }
  std::vector<Ref<PortionWorkerRole>> workers;
  for (std::int64_t r = 0; r < e.replicas().count(); ++r) {
    workers.push_back({static_cast<ActorId>(1 + slices.size() + static_cast<std::size_t>(r))});
  }
  Cast cast;
  const auto add = [&](std::string name, std::unique_ptr<Machine> machine, std::int32_t worker) {
    cast.members.push_back({.name = std::move(name),
                            .machine = std::move(machine),
                            .thread = cast.threads++,
                            .device = {},
                            .precision = b.precision,
                            .replica = worker,
                            .stage = worker});
  };
  add("source",
      std::make_unique<Coordinator>(
          Coordinator::Config{.workers = workers,
                              .shards = shards,
                              .samples = b.data->size(Split::train),
                              .test_samples = b.data->size(Split::test),
                              .labels_per_sample = b.data->labels_per_sample(),
                              .classes = b.data->classes() > 0,
                              .portions = static_cast<std::int32_t>(options.portions()),
                              .backup = static_cast<std::int32_t>(options.backup()),
                              .history = options.history(),
                              .armijo = options.armijo(),
                              .shrink = options.shrink(),
                              .batches = b.batches,
                              .seconds = e.stop().seconds(),
                              .evaluate_every = b.evaluate_every,
                              .evaluate = e.record().evaluate(),
                              .target_accuracy = e.stop().target_accuracy(),
                              .allow_divergence = e.stop().allow_divergence()}),
      -1);
  for (std::size_t s = 0; s < slices.size(); ++s) {
    add(concat("shard-", s),
        std::make_unique<VectorShard>(
            VectorShard::Config{.shard = static_cast<std::int32_t>(s),
                                .portions = static_cast<std::int32_t>(options.portions()),
                                .initial = std::move(slices[s]),
                                .coordinator = coordinator}),
        -1);
  }
  for (std::size_t r = 0; r < workers.size(); ++r) {
    const auto replica = static_cast<std::int32_t>(r);
    add(concat("worker-", replica),
        std::make_unique<PortionWorker>(PortionWorker::Config{.self = workers[r],
                                                              .replica = replica,
                                                              .seed = e.seed(),
                                                              .chunk = b.chunks.front(),
                                                              .data = b.data,
                                                              .coordinator = coordinator,
                                                              .shards = shards}),
        replica);
  }
  cast.starting = {coordinator.id};
  cast.director = {coordinator.id};
  return cast;
}

}  // namespace troupe
