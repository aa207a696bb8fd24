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
#include "runtime/data/sharding.hpp"
#include "runtime/schemes/rate.hpp"
#include "runtime/schemes/rule.hpp"
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
  if (auto fits = check_replicas(e); !fits) {
    return fits.error();
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
    b.link = make_link(e, b.batches, b.schedule->delay_max + 1);
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
  return {b.experiment.optimizer(), b.batches, std::move(milestones), rate_factor(b.experiment)};
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

namespace {

/// Who is who: every machine's id and thread, given out in the order in which they are added.
struct Roster {
  std::int32_t replicas = 1;
  std::int32_t stages = 1;
  std::int32_t chunks = 1;
  bool own = false;  // shards and optimizers have threads of their own

  // Replica 0's block is source, director, stages, shards, optimizers; the others' are the same
  // without a director. Threads likewise: one for the source, one a stage.
  ActorId first(std::int32_t r) const {
    const auto block = static_cast<ActorId>(1 + stages + 2 * chunks);
    return r == 0 ? 0 : 1 + static_cast<ActorId>(r) * block;
  }

  ActorId after_source(std::int32_t r) const { return first(r) + (r == 0 ? 2 : 1); }

  Ref<DirectorRole> director() const { return {1}; }

  Ref<SourceRole> source(std::int32_t r) const { return {first(r)}; }

  Ref<StageRole> stage(std::int32_t r, std::int32_t k) const {
    return {after_source(r) + static_cast<ActorId>(k)};
  }

  Ref<ShardRole> shard(std::int32_t r, std::int32_t c) const {
    return {after_source(r) + static_cast<ActorId>(stages + c)};
  }

  Ref<OptimizerRole> optimizer(std::int32_t r, std::int32_t c) const {
    return {after_source(r) + static_cast<ActorId>(stages + chunks + c)};
  }

  int first_thread(std::int32_t r) const {
    const int block = 1 + stages + (own ? 2 * chunks : 0);
    return r == 0 ? 0 : 1 + r * block;
  }

  int source_thread(std::int32_t r) const { return first_thread(r); }

  int director_thread() const { return 1; }

  int stage_thread(std::int32_t r, std::int32_t k) const {
    return first_thread(r) + (r == 0 ? 2 : 1) + k;
  }

  int shard_thread(std::int32_t r, std::int32_t c, std::int32_t k) const {
    return own ? stage_thread(r, stages + c) : stage_thread(r, k);
  }

  int optimizer_thread(std::int32_t r, std::int32_t c, std::int32_t k) const {
    return own ? stage_thread(r, stages + chunks + c) : stage_thread(r, k);
  }

  ActorId servers() const { return first(replicas); }  // two machines a server

  // A thread each, so that a server answers while its optimizer is at work.
  int server_thread() const { return first_thread(replicas); }
};

/// Streams to make initial weights on, one a device.
class Streams {
 public:
  Stream& on(Device device) {
    auto& stream = streams_[device];
    if (!stream) {
      stream = std::make_unique<Stream>(device);
    }
    return *stream;
  }

 private:
  std::map<Device, std::unique_ptr<Stream>> streams_;
};

/// The predictions that a chunk's plan asks for, whenever.
std::vector<Reach> all_reaches(const ViewPlan& plan) {
  std::set<Reach> reaches(plan.steady.begin(), plan.steady.end());
  for (const std::vector<Reach>& early : plan.early) {
    reaches.insert(early.begin(), early.end());
  }
  return {reaches.begin(), reaches.end()};
}

/// The optimizer that a replica has where servers make the updates: between two fetches it moves by
/// its own gradients (Dean et al. 2012), with no memory of them.
proto::Experiment own_optimizer(const proto::Experiment& e, const std::optional<Link>& link) {
  proto::Experiment own = e;
  if (link && link->steps && link->travel == Travel::gradient) {
    own.mutable_optimizer()->set_rule(proto::OptimizerRule::sgd);
  }
  return own;
}

/// What chunk `index` starts with, in buffers that all replicas write to.
std::shared_ptr<SharedWeights> shared_weights(Stream& stream,
                                              const Blueprint& b,
                                              std::size_t index) {
  const proto::Replicas& replicas = b.experiment.replicas();
  auto shared = std::make_shared<SharedWeights>();
  shared->add = replicas.exchange().hogwild().add() == proto::Hogwild::racy ? SharedAdd::racy
                                                                            : SharedAdd::atomic;
  for (const Tensor& slice : starting_slices(stream, b, index)) {
    shared->slices.push_back(
        std::make_unique<SharedBuffer>(slice.elements(), static_cast<int>(replicas.count())));
    shared_store(stream, *shared->slices.back(), slice);
  }
  return shared;
}

}  // namespace

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

Cast build_cast(const Blueprint& b) {
  const proto::Experiment& e = b.experiment;
  const Schedule& schedule = *b.schedule;
  const Roster who{.replicas = static_cast<std::int32_t>(e.replicas().count()),
                   .stages = schedule.options.stages,
                   .chunks = schedule.chunks,
                   .own = e.placement().optimizer() == proto::Placement::own};
  const std::int32_t R = who.replicas;
  const std::int32_t K = who.stages;
  const std::int32_t C = who.chunks;
  const bool served = b.link.has_value();
  const std::optional<Reduction> reduction = reduction_of(e);
  const bool hogwild = e.replicas().exchange().has_hogwild();
  const Ref<DirectorRole> director = who.director();
  const auto device_of = [&](std::int32_t r, std::int32_t k) {
    return b.devices[static_cast<std::size_t>(r * K + k)];
  };
  const auto named = [&](const char* what, std::int32_t r, std::int32_t i) {
    return R == 1 ? concat(what, "-", i) : concat(what, "-", r, ".", i);
  };

  Cast cast;
  const auto add = [&](Cast::Member member) {
    cast.threads = std::max(cast.threads, member.thread + 1);
    cast.members.push_back(std::move(member));
  };

  // The servers: one a slice of each chunk.
  std::vector<std::vector<Ref<ServerRole>>> servers(static_cast<std::size_t>(C));
  std::vector<Ref<ServerRole>> all_servers;
  if (served) {
    for (std::int32_t c = 0; c < C; ++c) {
      const std::size_t slices = b.chunks[static_cast<std::size_t>(c)]->layout().slice_sizes.size();
      for (std::size_t s = 0; s < slices; ++s) {
        const Ref<ServerRole> server{who.servers() + 2 * static_cast<ActorId>(all_servers.size())};
        servers[static_cast<std::size_t>(c)].push_back(server);
        all_servers.push_back(server);
      }
    }
  }

  std::vector<std::size_t> tied(b.chunks.size(), 0);  // TiedPushes to each chunk's shard
  for (const auto& chunk : b.chunks) {
    for (const BorrowedSlice& slice : chunk->borrowed()) {
      ++tied[static_cast<std::size_t>(slice.owner)];
    }
  }
  std::vector<std::vector<std::int64_t>> samples(static_cast<std::size_t>(R));
  if (e.replicas().split() == proto::Replicas::by_label && R > 1) {
    samples = blocks_by_label(*b.data, R);
  }

  Director::Config watch{.sources = {},
                         .shards = {},
                         .servers = all_servers,
                         .stages = {},
                         .replica_of = {},
                         .chunks = C,
                         .each_finishes = hogwild,
                         .survives = served || hogwild,
                         .evaluate = e.record().evaluate(),
                         .target_accuracy = e.stop().target_accuracy(),
                         .allow_divergence = e.stop().allow_divergence()};
  for (std::int32_t r = 0; r < R; ++r) {
    watch.sources.push_back(who.source(r));
    auto& of_replica = watch.stages.emplace_back();
    for (std::int32_t k = 0; k < K; ++k) {
      of_replica.push_back(who.stage(r, k));
    }
    auto& shards_of_replica = watch.shards.emplace_back();
    for (std::int32_t c = 0; c < C; ++c) {
      shards_of_replica.push_back(who.shard(r, c));
    }
    for (ActorId id = who.first(r); id < who.first(r + 1); ++id) {
      watch.replica_of.push_back(id == director.id ? -1 : r);
    }
  }
  watch.replica_of.resize(watch.replica_of.size() + 2 * all_servers.size(), -1);

  Streams streams;
  const Rate rate = rate_of(b);
  const proto::Experiment own = own_optimizer(e, b.link);
  const auto keep = static_cast<KeepActivations>(e.pipeline().activations());
  std::vector<StepRule> rules;
  for (std::int32_t c = 0; c < C; ++c) {
    rules.emplace_back(own,
                       rate,
                       schedule.delay[static_cast<std::size_t>(c)],
                       schedule.options.synchronous_batches);
  }
  std::vector<std::shared_ptr<SharedWeights>> shared;  // by chunk
  for (std::size_t c = 0; c < b.chunks.size() && hogwild; ++c) {
    shared.push_back(shared_weights(streams.on({}), b, c));
  }
  // Mini-batch b of replica r is number b R + r: how many of the run's are its own?
  const auto share = [R](std::int64_t batches, std::int32_t r) {
    return batches / R + (r < batches % R ? 1 : 0);
  };
  for (std::int32_t r = 0; r < R; ++r) {
    const bool marks = !served && !hogwild && r == 0;  // evaluates on its own account
    std::vector<Ref<StageRole>> stages = watch.stages[static_cast<std::size_t>(r)];
    std::vector<Ref<StageRole>> stage_of;
    std::vector<Ref<ShardRole>> shards;
    for (std::int32_t c = 0; c < C; ++c) {
      stage_of.push_back(who.stage(r, schedule.stage_of(c)));
      shards.push_back(who.shard(r, c));
    }
    add({.name = R == 1 ? "source" : concat("source-", r),
         .machine = std::make_unique<Source>(
             Source::Config{.replica = r,
                            .replicas = R,
                            .served = served,
                            .samples = samples[static_cast<std::size_t>(r)],
                            .data = b.data,
                            .sizes = b.sizes,
                            .micro_batches = schedule.options.micro_batches,
                            .seed = e.seed(),
                            .prefetch = kPrefetch,
                            .batches = hogwild  ? share(b.batches, r)
                                       : served ? 0
                                                : b.batches,
                            // Replica 0 says where an all-reduce ends: nobody gets beyond it.
                            .seconds = reduction && r > 0 ? 0 : e.stop().seconds(),
                            .evaluate_every = marks ? b.evaluate_every : 0,
                            .delay_max = schedule.delay_max,
                            .evaluate = marks && e.record().evaluate(),
                            .first = stage_of.front(),
                            .head = stage_of.back(),
                            .head_chunk = C - 1,
                            .stages = stages,
                            .shards = shards,
                            .director = director}),
         .thread = who.source_thread(r),
         // Uploads on a stream of its own, while the stage's is at work on what came before.
         .device = device_of(r, 0),
         .replica = r});
    if (r == 0) {
      add({.name = "director",
           .machine = std::make_unique<Director>(watch),
           .thread = who.director_thread(),
           .device = {}});
    }
    for (std::int32_t k = 0; k < K; ++k) {
      std::map<std::int32_t, std::vector<Tensor>> buffers;
      for (std::int32_t c = 0; c < C; ++c) {
        if (schedule.stage_of(c) == k) {
          buffers[c] =
              starting_buffers(streams.on(device_of(r, k)), b, static_cast<std::size_t>(c));
        }
      }
      add({.name = named("stage", r, k),
           .machine = std::make_unique<Stage>(
               Stage::Config{.self = who.stage(r, k),
                             .replica = r,
                             .replicas = R,
                             .served = served || hogwild,
                             .stage = k,
                             .seed = e.seed(),
                             .sizes = b.sizes,
                             .schedule = b.schedule,
                             .view = b.view,
                             .keep = keep,
                             .gap_every = served ? 0 : e.record().gap_every(),
                             .chunks = b.chunks,
                             .stage_of = stage_of,
                             .shard_of = shards,
                             .evaluate_every = marks ? b.evaluate_every : 0,
                             .buffers = std::move(buffers),
                             .source = who.source(r),
                             .director = director}),
           .thread = who.stage_thread(r, k),
           .device = device_of(r, k),
           .precision = b.precision,
           .replica = r,
           .stage = r * K + k});
    }
    for (std::int32_t c = 0; c < C; ++c) {
      const auto at = static_cast<std::size_t>(c);
      const std::int32_t k = schedule.stage_of(c);
      std::vector<Ref<ShardRole>> peers;
      for (std::int32_t other = 0; other < R && reduction; ++other) {
        peers.push_back(who.shard(other, c));
      }
      add({.name = named("shard", r, c),
           .machine = std::make_unique<ParameterShard>(ParameterShard::Config{
               .self = who.shard(r, c),
               .chunk = c,
               .optimizer = who.optimizer(r, c),
               .rule = rules[at],
               .plan = b.plans[at],
               .clip_norm = e.optimizer().clip_norm(),
               .clip_globally = schedule.flushed,
               .shards = shards,
               .evaluate_every = marks || hogwild ? b.evaluate_every : 0,
               .director = director,
               .initial = starting_slices(streams.on(device_of(r, k)), b, at),
               .tied = tied[at],
               .replica = r,
               .link = b.link,
               .servers = servers[at],
               .reduction = reduction,
               .peers = std::move(peers),
               .shared = hogwild,
               .updates = b.batches}),
           .thread = who.shard_thread(r, c, k),
           .device = device_of(r, k),
           .precision = b.precision,
           .replica = r});
    }
    for (std::int32_t c = 0; c < C; ++c) {
      const auto at = static_cast<std::size_t>(c);
      const std::int32_t k = schedule.stage_of(c);
      add({.name = named("optimizer", r, c),
           .machine = std::make_unique<Optimizer>(
               Optimizer::Config{.replica = r,
                                 .stage = k,
                                 .rule = rules[at],
                                 .layout = b.chunks[at]->layout(),
                                 .slim = slim_numbers(e, 0),
                                 .shared = hogwild ? shared[at] : nullptr}),
           .thread = who.optimizer_thread(r, c, k),
           .device = device_of(r, k),
           .precision = b.precision,
           .replica = r});
    }
    cast.starting.push_back(who.source(r).id);
    for (const auto& stage : stages) {
      cast.starting.push_back(stage.id);
    }
  }
  cast.director = director;

  int thread = who.server_thread();
  for (std::int32_t c = 0; c < C && served; ++c) {
    const auto at = static_cast<std::size_t>(c);
    const std::int32_t k = schedule.stage_of(c);
    const Device device = device_of(0, k);
    const ParameterLayout& layout = b.chunks[at]->layout();
    std::vector<Tensor> initial = starting_slices(streams.on(device), b, at);
    for (std::size_t s = 0; s < layout.slice_sizes.size(); ++s) {
      const RuleContext context = rule_context(b, c, s);
      std::int64_t parameters = 0;
      for (const RuleContext::Part& part : context.parts) {
        parameters += part.shape.elements();
      }
      Rule rule = make_rule(context);
      std::vector<Ref<ShardRole>> shards;
      for (std::int32_t r = 0; r < R; ++r) {
        shards.push_back(who.shard(r, c));
      }
      const Ref<ServerRole> self = servers[at][s];
      const Ref<ServerOptimizerRole> optimizer{self.id + 1};
      add({.name = concat("server-", c, ".", s),
           .machine = std::make_unique<ServerShard>(ServerShard::Config{
               .self = self,
               .chunk = c,
               .slice = s,
               .optimizer = optimizer,
               .admission = std::move(rule.admission),
               .needs_read = rule.scale->needs_read(),
               .rate = rate,
               .replicas_step = b.link->steps && b.link->travel != Travel::gradient,
               .reaches = b.link->steps ? std::vector<Reach>{} : all_reaches(b.plans[at]),
               .replicas = std::move(shards),
               .batches_per_update = b.batches_per_update,
               .updates = b.batches,
               .evaluate_every = e.record().evaluate() ? b.evaluate_every : 0,
               .gap_every = e.record().gap_every(),
               .period = b.link->dynamic ? b.link->push_every : 0,
               .streams = b.link->streams,
               .together = !schedule.flushed && C > K,
               .announces = c == 0 && s == 0,
               .director = director,
               .initial = std::move(initial[s])}),
           .thread = thread,
           .device = device,
           .precision = b.precision});
      add({.name = concat("server-optimizer-", c, ".", s),
           .machine = std::make_unique<ServerOptimizer>(
               ServerOptimizer::Config{.stage = k,
                                       .parameters = parameters,
                                       .scale = std::move(rule.scale),
                                       .step = std::move(rule.step)}),
           .thread = thread + 1,
           .device = device,
           .precision = b.precision});
      thread += 2;
    }
  }
  return cast;
}

}  // namespace troupe
