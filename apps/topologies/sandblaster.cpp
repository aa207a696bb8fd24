#include "apps/topologies/sandblaster.hpp"

#include "actors/coordinator.hpp"
#include "actors/portion_worker.hpp"
#include "actors/vector_shard.hpp"
#include "kernels/stream.hpp"

#include <memory>
#include <string>

namespace troupe {
namespace {

Result<void> check(const Blueprint& b) {
  const proto::Experiment& e = b.experiment;
  const auto refuse = [](const std::string& why) {
    return Error{ErrorKind::usage, why};
  };
  if (e.pipeline().stages() != 1 || e.pipeline().micro_batches() != 1) {
    return refuse(
        "pipeline: a sandblaster replica is one stage, and replicas.exchange.sandblaster.portions "
        "cut "
        "its batch; stages and micro_batches are 1");
  }
  if (b.devices.front().kind != DeviceKind::cpu) {
    return refuse("placement.devices: sandblaster runs on cpu only");
  }
  const std::int64_t samples = b.data->size(Split::train);
  if (e.data().batch_size() != samples) {
    return refuse(
        concat("data.batch_size: sandblaster's batch is all of the training data; set it to ",
               samples,
               " (it is ",
               e.data().batch_size(),
               ')'));
  }
  if (const auto portions = e.replicas().exchange().sandblaster().portions(); portions > samples) {
    return refuse(concat("replicas.exchange.sandblaster.portions: ",
                         portions,
                         " is more than the ",
                         samples,
                         " training samples"));
  }
  if (e.optimizer().weight_decay() > 0 || e.optimizer().clip_norm() > 0) {
    return refuse(
        "optimizer: sandblaster takes no step of optimizer.rule; weight_decay and clip_norm have "
        "no "
        "meaning for it");
  }
  if (!b.chunks.front()->buffers().empty()) {
    return refuse(
        "model: sandblaster needs a loss that is a function of weights and samples alone; batch "
        "norm "
        "looks at the whole portion");
  }
  if (e.replicas().split() != proto::Replicas::interleaved) {
    return refuse(
        "replicas.split: sandblaster's replicas pull portions, and have no data of their own");
  }
  return {};
}

}  // namespace

std::vector<ChunkTimes> sandblaster_times(const Blueprint& b) {
  const proto::Experiment& e = b.experiment;
  const Flops f = b.chunks.front()->flops();
  const double rows = static_cast<double>(e.data().batch_size()) /
                      static_cast<double>(e.replicas().exchange().sandblaster().portions());
  auto times = mean_times(e.clock(),
                          {{f.forward * rows, f.input_gradient * rows, f.weight_gradient * rows}},
                          static_cast<std::int32_t>(e.pipeline().stages()));
  TROUPE_CHECK(times, "the blueprint has checked the clock");
  return *times;
}

Result<Cast> build_sandblaster(const Blueprint& b) {
  if (auto sound = check(b); !sound) {
    return sound.error();
  }
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
