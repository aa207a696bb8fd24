#include "apps/topologies/pipeline.hpp"

#include "actors/director.hpp"
#include "actors/optimizer.hpp"
#include "actors/parameter_shard.hpp"
#include "actors/server_optimizer.hpp"
#include "actors/server_shard.hpp"
#include "actors/source.hpp"
#include "actors/stage.hpp"
#include "apps/profile.hpp"
#include "apps/topologies/topology.hpp"
#include "kernels/stream.hpp"
#include "messages/experiment.hpp"
#include "runtime/data/registry.hpp"
#include "runtime/data/sharding.hpp"
#include "runtime/model/registry.hpp"
#include "runtime/schemes/optimizer_scheme.hpp"
#include "runtime/schemes/rate.hpp"
#include "runtime/schemes/schedule_scheme.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace troupe {
namespace {

constexpr std::int32_t kPrefetch = 4;  // micro-batches between Source and first stage

std::int64_t synchronous_batches(const proto::Experiment& e, const BatchSizes& sizes) {
  const double epochs = synchronous_epochs(e);
  return epochs > 0 ? sizes.batches(epochs) : 0;
}

Precision precision_of(const proto::Experiment& e) {
  switch (e.placement().precision()) {
    case proto::Placement::fp32:
      break;
    case proto::Placement::tf32:
      return Precision::tf32;
    case proto::Placement::bf16:
      return Precision::bf16;
  }
  return Precision::fp32;
}

Result<std::vector<Device>> place(const proto::Experiment& e) {
  const auto& names = e.placement().devices();
  const auto stages = static_cast<int>(e.pipeline().stages());
  const auto all = stages * static_cast<int>(e.replicas().count());
  if (names.size() != 1 && names.size() != stages && names.size() != all) {
    return Error{ErrorKind::usage,
                 concat("placement.devices: one device for all stages, or one for each of the ",
                        stages,
                        all == stages ? "" : concat(", or of the ", all, " of all replicas"),
                        "; there are ",
                        names.size())};
  }
  std::vector<Device> devices;
  for (int k = 0; k < all; ++k) {
    auto device = parse_device(names[k % names.size()]);
    if (!device) {
      return Error{ErrorKind::usage, "placement.devices: " + device.error().message};
    }
    if (auto available = check_available(*device); !available) {
      return Error{ErrorKind::usage, "placement.devices: " + available.error().message};
    }
    if (auto able = check_precision(*device, precision_of(e)); !able) {
      return Error{ErrorKind::usage, "placement.precision: " + able.error().message};
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

/// Where pipeline.partition wants layers to be measured and their cut is not known yet: measures,
/// and cuts.
Result<void> measured_partition(Blueprint& b) {
  proto::Pipeline& pipeline = *b.experiment.mutable_pipeline();
  const bool mixed = pipeline.partition() == proto::Pipeline::mixed;
  if (!(mixed || pipeline.partition() == proto::Pipeline::profiled) || !pipeline.cut().empty() ||
      (mixed ? b.schedule->options.stages : b.schedule->chunks) == 1) {
    return {};
  }
  if (mixed) {
    auto mix = measured_mix(b);
    if (!mix) {
      return mix.error();
    }
    b = *std::move(mix);
    return {};
  }
  auto cut = measured_cut(b);
  if (!cut) {
    return cut.error();
  }
  pipeline.mutable_cut()->Assign(cut->begin(), cut->end());
  return cut_blueprint(b, *cut);
}

/// Whether the keys of the cut go together.
Result<void> check_partition(const proto::Experiment& e) {
  const proto::Pipeline& pipeline = e.pipeline();
  const auto schedule = chosen_schedule(e);
  if (!schedule) {
    return schedule.error();
  }
  if (pipeline.partition() == proto::Pipeline::profiled && pipeline.cut().empty() &&
      !pipeline.stage_of().empty()) {
    return Error{ErrorKind::usage,
                 "pipeline.partition: profiled makes all chunks alike, not all stages, so that it "
                 "does not go with pipeline.stage_of; use mixed, which finds both, or set "
                 "pipeline.cut"};
  }
  if (pipeline.partition() != proto::Pipeline::mixed || pipeline.stages() == 1) {
    return {};
  }
  if ((*schedule)->chunks) {
    return Error{ErrorKind::usage,
                 concat("pipeline.partition: mixed says which stage has which chunk, and so does "
                        "pipeline.schedule ",
                        (*schedule)->info.name,
                        "; choose another schedule, or profiled")};
  }
  if (pipeline.cut().empty() != pipeline.stage_of().empty()) {
    return Error{ErrorKind::usage,
                 concat("pipeline.partition: mixed finds pipeline.cut and pipeline.stage_of "
                        "together; there is only pipeline.",
                        pipeline.cut().empty() ? "stage_of" : "cut",
                        ", so set both or none, or use flops")};
  }
  return {};
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
  if (auto partition = check_partition(e); !partition) {
    return partition.error();
  }
  b.devices = *devices;
  b.precision = precision_of(e);
  for (const auto& check : {check_optimizer, check_model, check_data, check_replicas}) {
    if (auto fits = check(e); !fits) {
      return fits.error();
    }
  }
  const std::int64_t R = e.replicas().count();
  for (const auto& [key, listed] :
       {std::pair{"clock.workers.slowness", e.clock().workers().slowness_size()},
        std::pair{"clock.workers.hold_back", e.clock().workers().hold_back_size()},
        std::pair{"clock.exchange.seconds", e.clock().exchange().seconds_size()}}) {
    if (listed > 1 && listed != R) {
      return Error{ErrorKind::usage,
                   concat(key,
                          ": one number for all replicas, or one for each of the ",
                          R,
                          "; there are ",
                          listed)};
    }
  }
  if (const proto::Straggler& straggler = e.clock().workers().straggler();
      straggler.has_permanent() && straggler.permanent().replica() >= R) {
    return Error{ErrorKind::usage,
                 concat("clock.workers.straggler.permanent.replica: ",
                        straggler.permanent().replica(),
                        " of replicas.count ",
                        R,
                        ", which are numbered from 0")};
  }
  b.batches_per_update = batches_per_update(e);
  if (e.data().batch_size() % pipeline.micro_batches() != 0) {
    return Error{ErrorKind::usage,
                 concat("pipeline.micro_batches: ",
                        pipeline.micro_batches(),
                        " does not divide data.batch_size ",
                        e.data().batch_size())};
  }
  if (e.data().has_none() && !(*network_scheme(e.model()))->objective) {
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
  auto sizes = batch_sizes(e, b.data->size(Split::train));
  if (!sizes) {
    return sizes.error();
  }
  b.sizes = *std::move(sizes);
  b.batches_per_epoch = b.sizes.batches_per_epoch();
  if (!e.data().growth().at().empty() && (R > 1 || b.batches_per_update != 1)) {
    return Error{ErrorKind::usage,
                 "data.growth: mini-batches grow with one replica only, each of them an update"};
  }
  if (e.replicas().split() == proto::Replicas::by_label) {
    if (b.data->classes() == 0 || b.data->labels_per_sample() != 1) {
      return Error{ErrorKind::usage, "replicas.split: by_label needs samples of one class each"};
    }
    if (b.data->size(Split::train) / R < e.data().batch_size()) {
      return Error{ErrorKind::usage,
                   concat("data.batch_size: ",
                          e.data().batch_size(),
                          " is more than a replica's share of the ",
                          b.data->size(Split::train),
                          " training samples")};
    }
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
    const std::int64_t mini_batches = std::max<std::int64_t>(1, b.sizes.batches(stop.epochs()));
    b.batches = (mini_batches + b.batches_per_update - 1) / b.batches_per_update;
  }
  if (stop.updates() > 0) {
    b.batches = b.batches > 0 ? std::min<std::int64_t>(b.batches, stop.updates()) : stop.updates();
  }
  const auto& rates = e.optimizer().schedule();
  if (b.batches == 0 && (rates.has_cosine() || rates.has_polynomial() || rates.has_milestones())) {
    return Error{ErrorKind::usage,
                 "optimizer.schedule: cosine, polynomial and milestones follow the length of the "
                 "run, so stop.updates or "
                 "stop.epochs must be set"};
  }
  if (e.record().evaluate()) {
    b.evaluate_every = e.record().evaluate_every() > 0
                           ? e.record().evaluate_every()
                           : std::max<std::int64_t>(1, b.batches_per_epoch / b.batches_per_update);
  }

  if (auto made = schedule_blueprint(b); !made) {
    return made.error();
  }
  if (auto sound = check_topology(b); !sound) {
    return sound.error();
  }
  if (auto made = measured_partition(b); !made) {
    return made.error();
  }
  return b;
}

Result<void> schedule_blueprint(Blueprint& b) {
  const proto::Experiment& e = b.experiment;
  const proto::Pipeline& pipeline = e.pipeline();
  const auto stages = static_cast<std::int32_t>(pipeline.stages());
  auto options = schedule_options(e);
  if (!options) {
    return options.error();
  }
  options->synchronous_batches = synchronous_batches(e, b.sizes);
  // Before the schedule, which is long to make for many stages.
  if (auto deep = check_depth(b.network, stages * options->chunks_per_stage); !deep) {
    return deep.error();
  }
  if (const auto layers = static_cast<int>(b.network.layers.size());
      pipeline.stage_of_size() > layers) {
    return Error{ErrorKind::usage,
                 concat("pipeline.stage_of: it has ",
                        pipeline.stage_of_size(),
                        " chunks, and the network only ",
                        layers,
                        " layers")};
  }
  auto schedule = make_schedule(*options);
  if (!schedule) {
    return schedule.error();
  }
  if (auto policy = check_policy(e, *schedule); !policy) {
    return policy.error();
  }
  // Replica 0 alone says where a run ends that is interrupted; a stage of another one that is beyond
  // it by then waits for ever, and may owe gradients of its other chunks.
  const bool reduces =
      e.replicas().exchange().has_synchronous() &&
      e.replicas().exchange().synchronous().reduction() != proto::Synchronous::server;
  if (reduces && !schedule->flushed && schedule->chunks > stages) {
    return Error{ErrorKind::usage,
                 concat("replicas.exchange.synchronous.reduction: ring and tree do not go with "
                        "several chunks a stage (pipeline.stage_of) under ",
                        schedule->options.name,
                        "; right is server, or a flushed schedule")};
  }
  b.schedule = std::make_shared<const Schedule>(std::move(*schedule));
  if (has_servers(e)) {
    b.link = make_link({e, b.batches, b.schedule->delay_max + 1});
    if (const std::int64_t period = b.link->push_every;
        b.link->steps && b.link->last > 0 && b.evaluate_every > 0) {
      // The weights that all share exist where the replicas meet.
      b.evaluate_every = (b.evaluate_every + period - 1) / period * period;
    }
  }
  b.view = make_view(e, *b.schedule);
  return cut_blueprint(b, {pipeline.cut().begin(), pipeline.cut().end()});
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
    const auto shards = static_cast<std::size_t>(
        b.link || e.replicas().exchange().has_sandblaster() ? e.replicas().shards() : 1);
    b.chunks.push_back(std::make_shared<const Chunk>(b.network, b.cut, c, shards));
    if (b.chunks.back()->layout().slice_sizes.size() < shards) {
      return Error{ErrorKind::usage,
                   concat("replicas.shards: chunk ",
                          c,
                          " has ",
                          b.chunks.back()->layout().entries.size(),
                          " tensors, too few for ",
                          shards,
                          " shards")};
    }
    auto plan = plan_views(*b.schedule, *b.view, c);
    if (!plan) {
      return plan.error();
    }
    b.plans.push_back(*std::move(plan));
    const Flops f = b.chunks.back()->flops();
    flops.push_back({f.forward * rows, f.input_gradient * rows, f.weight_gradient * rows});
  }
  // Those who borrow a tied parameter read it up to the owner's delay later than the owner does.
  std::set<std::int32_t> lenders;
  for (const auto& chunk : b.chunks) {
    for (const BorrowedSlice& slice : chunk->borrowed()) {
      if (lenders.insert(slice.owner).second) {
        const auto owner = static_cast<std::size_t>(slice.owner);
        b.plans[owner].keep += b.schedule->delay[owner];
      }
    }
  }
  auto times = mean_times(e.clock(), flops, b.schedule->placement);
  if (!times) {
    return times.error();
  }
  b.times = *times;
  return {};
}

Rate rate_of(const Blueprint& b) {
  std::vector<std::int64_t> milestones;
  if (!b.experiment.data().growth().at().empty()) {  // else shares of updates are the same
    for (const double at : b.experiment.optimizer().schedule().milestones().at()) {
      milestones.push_back(b.sizes.batches(at * b.sizes.epochs(b.batches)));
    }
  }
  const std::int64_t five_epochs = b.sizes.batches(5) / b.batches_per_update;
  return {warmed_up(b.experiment, b.batches, five_epochs),
          b.batches,
          std::move(milestones),
          rate_factor(b.experiment)};
}

std::int64_t largest_micro_batch(const Blueprint& b) {
  const std::int64_t last = std::max<std::int64_t>(b.batches, 1) - 1;
  return b.sizes.size(last) / b.experiment.pipeline().micro_batches();
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

RuleContext rule_context(const Blueprint& b, std::int32_t chunk, std::size_t slice) {
  const auto at = static_cast<std::size_t>(chunk);
  const ParameterLayout& layout = b.chunks[at]->layout();
  RuleContext context{.experiment = b.experiment,
                      .replicas = static_cast<std::int32_t>(b.experiment.replicas().count()),
                      .rate = rate_of(b),
                      .delay = b.schedule->delay[at],
                      .parts = {},
                      .elements = layout.slice_sizes[slice],
                      .in_flight = b.schedule->delay_max + 1};
  for (const ParameterLayout::Entry& entry : layout.entries) {
    if (entry.slice == slice) {
      context.parts.push_back({entry.spec.name, entry.offset, entry.spec.shape, entry.spec.matrix});
    }
  }
  return context;
}

}  // namespace troupe
