#include "apps/topologies/pipeline.hpp"

#include "actors/director.hpp"
#include "actors/optimizer.hpp"
#include "actors/parameter_shard.hpp"
#include "actors/source.hpp"
#include "actors/stage.hpp"
#include "apps/profile.hpp"
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
    if (device->kind == DeviceKind::cuda && e.model().has_quadratic()) {
      return Error{ErrorKind::usage, "placement.devices: quadratic runs on cpu only"};
    }
    if (device->kind == DeviceKind::cuda && e.model().has_lenet5() && cudnn_version().empty()) {
      return Error{ErrorKind::usage,
                   "placement.devices: lenet5 runs on cpu only in this build, which has no cuDNN"};
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

  const proto::Model& model = e.model();
  if (b.data->input_type() == DType::int32 &&
      (model.has_linear() || model.has_mlp() || model.has_lenet5() || model.has_snn())) {
    return Error{ErrorKind::usage,
                 concat("model: ",
                        choice_name(model),
                        " reads numbers, and the samples of data ",
                        choice_name(e.data()),
                        " are tokens")};
  }
  auto network = build_network(e.model(), *b.data);
  if (!network) {
    return network.error();
  }
  b.network = *network;
  if (!e.start_from().empty()) {
    auto start = read_weights(e.start_from(), weight_specs(b.network));
    if (!start) {
      return Error{start.error().kind, "start_from: " + start.error().message};
    }
    b.start = *std::move(start);
  }

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
    if (batches > 1e12) {  // as stop.updates
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
  const auto chunks_per_stage =
      pipeline.schedule().has_interleaved()
          ? static_cast<std::int32_t>(pipeline.schedule().interleaved().chunks())
          : 1;
  // Before the schedule, which is long to make for many stages.
  if (auto deep =
          check_depth(b.network, static_cast<std::int32_t>(pipeline.stages()) * chunks_per_stage);
      !deep) {
    return deep.error();
  }
  auto schedule =
      make_schedule({.name = schedule_name,
                     .stages = static_cast<std::int32_t>(pipeline.stages()),
                     .micro_batches = static_cast<std::int32_t>(pipeline.micro_batches()),
                     .chunks_per_stage = chunks_per_stage,
                     .synchronous_batches = synchronous_batches(e, b.batches_per_epoch)});
  if (!schedule) {
    return schedule.error();
  }
  if (auto policy = check_policy(e, *schedule); !policy) {
    return policy.error();
  }
  b.schedule = std::make_shared<const Schedule>(std::move(*schedule));
  b.view = ViewPolicy(view_of(pipeline.weights()), b.schedule->delay_max);
  if (auto cut = cut_blueprint(b, {pipeline.cut().begin(), pipeline.cut().end()}); !cut) {
    return cut.error();
  }
  if (pipeline.partition() == proto::Pipeline::profiled && pipeline.cut().empty() &&
      b.schedule->chunks > 1) {
    auto cut = measured_cut(b);
    if (!cut) {
      return cut.error();
    }
    b.experiment.mutable_pipeline()->mutable_cut()->Assign(cut->begin(), cut->end());
    if (auto made = cut_blueprint(b, *cut); !made) {
      return made.error();
    }
  }
  return b;
}

Result<void> cut_blueprint(Blueprint& b, const std::vector<std::int64_t>& cut) {
  const proto::Experiment& e = b.experiment;
  auto first_layers = cut_network(b.network, b.schedule->chunks, cut);
  if (!first_layers) {
    return first_layers.error();
  }
  b.cut = *std::move(first_layers);
  b.chunks.clear();
  b.plans.clear();
  std::vector<ChunkFlops> flops;
  const auto rows = static_cast<double>(e.data().batch_size() / e.pipeline().micro_batches());
  for (std::int32_t c = 0; c < b.schedule->chunks; ++c) {
    b.chunks.push_back(std::make_shared<const Chunk>(b.network, b.cut, c));
    b.plans.push_back(plan_views(*b.schedule, b.view, c));
    const Flops f = b.chunks.back()->flops();
    flops.push_back({f.forward * rows, f.input_gradient * rows, f.weight_gradient * rows});
  }
  // Those who borrow a tied parameter read it up to the owner's delay later than the owner does.
  for (const auto& chunk : b.chunks) {
    for (const BorrowedSlice& slice : chunk->borrowed()) {
      ViewPlan& plan = b.plans[static_cast<std::size_t>(slice.owner)];
      const std::int64_t delay = b.schedule->delay[static_cast<std::size_t>(slice.owner)];
      plan.keep = std::max(plan.keep, plan_views(*b.schedule, b.view, slice.owner).keep + delay);
    }
  }
  auto times = mean_times(e.clock(), flops, b.schedule->options.stages);
  if (!times) {
    return times.error();
  }
  b.times = *times;
  return {};
}

std::vector<Tensor> starting_slices(Stream& stream, const Blueprint& b, std::size_t index) {
  const Chunk& chunk = *b.chunks[index];
  if (b.start.empty()) {
    return chunk.initial_slices(stream, b.experiment.seed());
  }
  std::size_t before = 0;  // parameters of the chunks before
  for (std::size_t c = 0; c < index; ++c) {
    before += b.chunks[c]->layout().entries.size();
  }
  const std::size_t own = chunk.layout().entries.size();
  return slices_of(stream, chunk.layout(), std::span(b.start).subspan(before, own));
}

std::vector<Tensor> starting_buffers(Stream& stream, const Blueprint& b, std::size_t index) {
  if (b.start.empty()) {
    return b.chunks[index]->initial_buffers(stream);
  }
  std::size_t at = 0;  // in a file buffers stand behind all parameters
  for (const auto& chunk : b.chunks) {
    at += chunk->layout().entries.size();
  }
  for (std::size_t c = 0; c < index; ++c) {
    at += b.chunks[c]->buffers().size();
  }
  std::vector<Tensor> tensors;
  for (const ParameterSpec& spec : b.chunks[index]->buffers()) {
    tensors.push_back(from_host(stream, b.start[at++], spec.shape));
  }
  return tensors;
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
                                                  .stages = stages,
                                                  .evaluate = e.record().evaluate(),
                                                  .target_accuracy = e.stop().target_accuracy(),
                                                  .allow_divergence = e.stop().allow_divergence()}),
      director_thread,
      {});
  const auto keep = static_cast<KeepActivations>(e.pipeline().activations());
  std::map<Device, std::unique_ptr<Stream>> streams;
  const auto stream_on = [&](std::int32_t stage) -> Stream& {
    auto& stream = streams[b.devices[static_cast<std::size_t>(stage)]];
    if (!stream) {
      stream = std::make_unique<Stream>(b.devices[static_cast<std::size_t>(stage)]);
    }
    return *stream;
  };
  std::vector<std::size_t> tied(b.chunks.size(), 0);  // TiedPushes to each chunk's shard
  for (const auto& chunk : b.chunks) {
    for (const BorrowedSlice& slice : chunk->borrowed()) {
      ++tied[static_cast<std::size_t>(slice.owner)];
    }
  }
  for (std::int32_t k = 0; k < K; ++k) {
    std::map<std::int32_t, std::vector<Tensor>> buffers;
    for (std::int32_t c = k; c < C; c += K) {
      buffers[c] = starting_buffers(stream_on(k), b, static_cast<std::size_t>(c));
    }
    add("stage-" + std::to_string(k),
        std::make_unique<Stage>(Stage::Config{.self = stages[static_cast<std::size_t>(k)],
                                              .replica = 0,
                                              .stage = k,
                                              .seed = e.seed(),
                                              .schedule = b.schedule,
                                              .view = b.view,
                                              .keep = keep,
                                              .gap_every = e.record().gap_every(),
                                              .chunks = b.chunks,
                                              .stage_of = stage_of,
                                              .shard_of = shards,
                                              .evaluate_every = b.evaluate_every,
                                              .buffers = std::move(buffers),
                                              .source = source,
                                              .director = director}),
        stage_thread(k),
        b.devices[static_cast<std::size_t>(k)]);
  }
  const Rate rate(e.optimizer(), b.batches);
  std::vector<StepRule> rules;
  for (std::int32_t c = 0; c < C; ++c) {
    const auto at = static_cast<std::size_t>(c);
    rules.emplace_back(e, rate, schedule.delay[at], schedule.options.synchronous_batches);
    const Device device = b.devices[static_cast<std::size_t>(schedule.stage_of(c))];
    add("shard-" + std::to_string(c),
        std::make_unique<ParameterShard>(ParameterShard::Config{
            .self = shards[at],
            .chunk = c,
            .optimizer = {static_cast<ActorId>(2 + K + C + c)},
            .rule = rules.back(),
            .plan = b.plans[at],
            .clip_norm = e.optimizer().clip_norm(),
            .clip_globally = schedule.flushed,
            .shards = shards,
            .evaluate_every = b.evaluate_every,
            .director = director,
            .initial = starting_slices(stream_on(schedule.stage_of(c)), b, at),
            .tied = tied[at]}),
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
