#include "apps/topologies/pipeline.hpp"

#include "actors/director.hpp"
#include "actors/optimizer.hpp"
#include "actors/parameter_shard.hpp"
#include "actors/source.hpp"
#include "actors/stage.hpp"
#include "kernels/stream.hpp"
#include "messages/experiment.hpp"
#include "runtime/schemes/rate.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace troupe {
namespace {

constexpr std::int32_t kPrefetch = 4;  // micro-batches between Source and first stage

std::int64_t synchronous_batches(const proto::Experiment& e, std::int64_t batches_per_epoch) {
  return e.pipeline().weights().has_pipemare()
             ? e.pipeline().weights().pipemare().synchronous_epochs() * batches_per_epoch
             : 0;
}

Result<std::vector<Device>> place(const proto::Experiment& e) {
  const auto& names = e.placement().devices();
  const auto stages = static_cast<int>(e.pipeline().stages());
  if (names.size() != 1 && names.size() != stages) {
    return Error{ErrorKind::usage,
                 concat("placement.devices: one device for all stages, or one for each of the ",
                        stages,
                        "; there are ",
                        names.size())};
  }
  std::vector<Device> devices;
  for (int k = 0; k < stages; ++k) {
    auto device = parse_device(names[names.size() == 1 ? 0 : k]);
    if (!device) {
      return Error{ErrorKind::usage, "placement.devices: " + device.error().message};
    }
    if (auto available = check_available(*device); !available) {
      return Error{ErrorKind::usage, "placement.devices: " + available.error().message};
    }
    if (device->kind == DeviceKind::cuda && (e.model().has_lenet5() || e.model().has_quadratic())) {
      return Error{
          ErrorKind::usage,
          concat("placement.devices: ", choice_name(e.model()), " runs on cpu only so far")};
    }
    devices.push_back(*device);
  }
  return devices;
}

}  // namespace

Result<Blueprint> make_blueprint(const proto::Experiment& resolved) {
  Blueprint b;
  b.experiment = resolved;
  const proto::Experiment& e = b.experiment;
  const proto::Pipeline& pipeline = e.pipeline();
  auto devices = place(e);
  if (!devices) {
    return devices.error();
  }
  b.devices = *devices;
  if (e.data().batch_size() % pipeline.micro_batches() != 0) {
    return Error{ErrorKind::usage,
                 concat("pipeline.micro_batches: ",
                        pipeline.micro_batches(),
                        " does not divide data.batch_size ",
                        e.data().batch_size())};
  }
  if (e.data().has_none() && !e.model().has_quadratic()) {
    return Error{ErrorKind::usage,
                 concat("data: none has nothing to learn for model ",
                        choice_name(e.model()),
                        "; it is for quadratic")};
  }
  auto data = open_dataset(e.data(), e.seed());
  if (!data) {
    return data.error();
  }
  b.data = *data;
  if (e.data().batch_size() > b.data->size(Split::train)) {
    return Error{ErrorKind::usage,
                 concat("data.batch_size: ",
                        e.data().batch_size(),
                        " is more than the ",
                        b.data->size(Split::train),
                        " training samples")};
  }
  b.batches_per_epoch = b.data->size(Split::train) / e.data().batch_size();

  auto network = build_network(e.model(), *b.data);
  if (!network) {
    return network.error();
  }
  b.network = *network;

  const auto& stop = e.stop();
  if (stop.updates() == 0 && stop.epochs() == 0 && stop.seconds() == 0 &&
      stop.target_accuracy() == 0) {
    return Error{ErrorKind::usage,
                 "stop: the run would never end; set stop.updates, stop.epochs, stop.seconds or "
                 "stop.target_accuracy"};
  }
  if (stop.target_accuracy() > 0 && (!e.record().evaluate() || b.data->classes() == 0)) {
    return Error{ErrorKind::usage,
                 "stop.target_accuracy: needs record.evaluate and data with classes"};
  }
  if (stop.epochs() > 0) {
    const double batches =
        std::ceil(stop.epochs() * static_cast<double>(b.batches_per_epoch) - 1e-9);
    if (batches > 9e15) {
      return Error{ErrorKind::usage,
                   concat("stop.epochs: ", stop.epochs(), " is more than can be counted")};
    }
    b.batches = std::max<std::int64_t>(1, static_cast<std::int64_t>(batches));
  }
  if (stop.updates() > 0) {
    b.batches = b.batches > 0 ? std::min<std::int64_t>(b.batches, stop.updates()) : stop.updates();
  }
  const auto& rates = e.optimizer().schedule();
  if (b.batches == 0 && (rates.has_cosine() || rates.has_polynomial())) {
    return Error{ErrorKind::usage,
                 "optimizer.schedule: cosine and polynomial end with the run, so stop.updates or "
                 "stop.epochs must be set"};
  }
  if (e.record().evaluate()) {
    b.evaluate_every =
        e.record().evaluate_every() > 0 ? e.record().evaluate_every() : b.batches_per_epoch;
  }

  const std::string schedule_name = choice_name(pipeline.schedule());
  auto schedule =
      make_schedule({.name = schedule_name,
                     .stages = static_cast<std::int32_t>(pipeline.stages()),
                     .micro_batches = static_cast<std::int32_t>(pipeline.micro_batches()),
                     .chunks_per_stage =
                         pipeline.schedule().has_interleaved()
                             ? static_cast<std::int32_t>(pipeline.schedule().interleaved().chunks())
                             : 1,
                     .synchronous_batches = synchronous_batches(e, b.batches_per_epoch)});
  if (!schedule) {
    return schedule.error();
  }
  if (auto policy = check_policy(e, *schedule); !policy) {
    return policy.error();
  }
  auto cut =
      cut_network(b.network, schedule->chunks, {pipeline.cut().begin(), pipeline.cut().end()});
  if (!cut) {
    return cut.error();
  }
  b.cut = *cut;
  b.schedule = std::make_shared<const Schedule>(std::move(*schedule));
  b.view = ViewPolicy(weight_scheme(choice_name(pipeline.weights())).view, b.schedule->delay_max);

  std::vector<ChunkFlops> flops;
  const auto rows = static_cast<double>(e.data().batch_size() / pipeline.micro_batches());
  for (std::int32_t c = 0; c < b.schedule->chunks; ++c) {
    const auto at = static_cast<std::size_t>(c);
    const std::int64_t last = c + 1 < b.schedule->chunks
                                  ? b.cut[at + 1]
                                  : static_cast<std::int64_t>(b.network.layers.size());
    b.chunks.push_back(std::make_shared<const Chunk>(b.network, c, b.cut[at], last));
    b.plans.push_back(plan_views(*b.schedule, b.view, c));
    const Flops f = b.chunks.back()->flops();
    flops.push_back({f.forward * rows, f.input_gradient * rows, f.weight_gradient * rows});
  }
  auto times = mean_times(e.clock(), flops, b.schedule->options.stages);
  if (!times) {
    return times.error();
  }
  b.times = *times;
  return b;
}

Cast build_cast(const Blueprint& b) {
  const proto::Experiment& e = b.experiment;
  const Schedule& schedule = *b.schedule;
  const std::int32_t K = schedule.options.stages;
  const std::int32_t C = schedule.chunks;
  const bool own = e.placement().optimizer() == proto::Placement::own;

  // Ids: source, director, stages, shards, optimizers. Threads: source and director, then one a
  // stage; with placement.optimizer own, one more a shard and one more an optimizer.
  const Ref<SourceRole> source{0};
  const Ref<DirectorRole> director{1};
  std::vector<Ref<StageRole>> stages;
  std::vector<Ref<StageRole>> stage_of;
  std::vector<Ref<ShardRole>> shards;
  for (std::int32_t k = 0; k < K; ++k) {
    stages.push_back({static_cast<ActorId>(2 + k)});
  }
  for (std::int32_t c = 0; c < C; ++c) {
    stage_of.push_back(stages[static_cast<std::size_t>(schedule.stage_of(c))]);
    shards.push_back({static_cast<ActorId>(2 + K + c)});
  }

  Cast cast;
  const auto add =
      [&](std::string name, std::unique_ptr<Machine> machine, int thread, Device device) {
        cast.members.push_back({std::move(name), std::move(machine), thread, device});
        cast.threads = std::max(cast.threads, thread + 1);
      };
  const int source_thread = 0;
  const int director_thread = 1;
  const auto stage_thread = [&](std::int32_t k) {
    return 2 + k;
  };
  const auto shard_thread = [&](std::int32_t c) {
    return own ? 2 + K + c : stage_thread(schedule.stage_of(c));
  };
  const auto optimizer_thread = [&](std::int32_t c) {
    return own ? 2 + K + C + c : stage_thread(schedule.stage_of(c));
  };

  add("source",
      std::make_unique<Source>(Source::Config{.replica = 0,
                                              .data = b.data,
                                              .batch_size = e.data().batch_size(),
                                              .micro_batches = schedule.options.micro_batches,
                                              .seed = e.seed(),
                                              .prefetch = kPrefetch,
                                              .batches = b.batches,
                                              .seconds = e.stop().seconds(),
                                              .evaluate_every = b.evaluate_every,
                                              .delay_max = schedule.delay_max,
                                              .evaluate = e.record().evaluate(),
                                              .first = stage_of.front(),
                                              .head = stage_of.back(),
                                              .head_chunk = C - 1,
                                              .stages = stages,
                                              .shards = shards,
                                              .director = director}),
      source_thread,
      {});
  add("director",
      std::make_unique<Director>(Director::Config{.source = source,
                                                  .shards = shards,
                                                  .evaluate = e.record().evaluate(),
                                                  .target_accuracy = e.stop().target_accuracy(),
                                                  .allow_divergence = e.stop().allow_divergence()}),
      director_thread,
      {});
  const auto keep = static_cast<KeepActivations>(e.pipeline().activations());
  for (std::int32_t k = 0; k < K; ++k) {
    add("stage-" + std::to_string(k),
        std::make_unique<Stage>(Stage::Config{.self = stages[static_cast<std::size_t>(k)],
                                              .replica = 0,
                                              .stage = k,
                                              .schedule = b.schedule,
                                              .view = b.view,
                                              .keep = keep,
                                              .gap_every = e.record().gap_every(),
                                              .chunks = b.chunks,
                                              .stage_of = stage_of,
                                              .shard_of = shards,
                                              .source = source}),
        stage_thread(k),
        b.devices[static_cast<std::size_t>(k)]);
  }
  const Rate rate(e.optimizer(), b.batches);
  std::vector<StepRule> rules;
  std::map<Device, std::unique_ptr<Stream>> streams;
  for (std::int32_t c = 0; c < C; ++c) {
    const auto at = static_cast<std::size_t>(c);
    rules.emplace_back(e, rate, schedule.delay[at], schedule.options.synchronous_batches);
    const Device device = b.devices[static_cast<std::size_t>(schedule.stage_of(c))];
    auto& stream = streams[device];
    if (!stream) {
      stream = std::make_unique<Stream>(device);
    }
    add("shard-" + std::to_string(c),
        std::make_unique<ParameterShard>(
            ParameterShard::Config{.self = shards[at],
                                   .chunk = c,
                                   .optimizer = {static_cast<ActorId>(2 + K + C + c)},
                                   .rule = rules.back(),
                                   .plan = b.plans[at],
                                   .clip_norm = e.optimizer().clip_norm(),
                                   .clip_globally = schedule.flushed,
                                   .shards = shards,
                                   .evaluate_every = b.evaluate_every,
                                   .director = director,
                                   .initial = b.chunks[at]->initial_slices(*stream, e.seed())}),
        shard_thread(c),
        device);
  }
  for (std::int32_t c = 0; c < C; ++c) {
    const auto at = static_cast<std::size_t>(c);
    add("optimizer-" + std::to_string(c),
        std::make_unique<Optimizer>(Optimizer::Config{.replica = 0,
                                                      .stage = schedule.stage_of(c),
                                                      .rule = rules[at],
                                                      .layout = b.chunks[at]->layout()}),
        optimizer_thread(c),
        b.devices[static_cast<std::size_t>(schedule.stage_of(c))]);
  }
  cast.director = director;
  cast.starting.push_back(source.id);
  for (const auto& stage : stages) {
    cast.starting.push_back(stage.id);
  }
  return cast;
}

}  // namespace troupe
