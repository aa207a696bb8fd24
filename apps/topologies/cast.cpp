#include "apps/topologies/cast.hpp"

#include "actors/director.hpp"
#include "actors/optimizer.hpp"
#include "actors/parameter_shard.hpp"
#include "actors/source.hpp"
#include "actors/stage.hpp"
#include "apps/topologies/exchange.hpp"
#include "apps/topologies/extension.hpp"
#include "apps/topologies/predictors.hpp"
#include "apps/topologies/probe.hpp"
#include "apps/topologies/roster.hpp"
#include "apps/topologies/servers.hpp"
#include "apps/topologies/streams.hpp"
#include "runtime/data/sharding.hpp"

#include <map>
#include <utility>

namespace troupe {
namespace {

constexpr std::int32_t kPrefetch = 4;  // micro-batches between Source and first stage

/// Makes the members of a cast, in the order of the roster.
class Casting {
 public:
  explicit Casting(const Blueprint& blueprint);

  Cast all();

  /// The machines of replica `r` anew; they wait for Rejoin.
  std::vector<Cast::Again> again(std::int32_t r);

 private:
  void add(ActorId id,
           std::unique_ptr<Machine> machine,
           Device device,
           Precision precision,
           std::int32_t stage = -1);
  void add_source(std::int32_t r);
  void add_workers(std::int32_t r);
  void add_director();
  void add_stage(std::int32_t r, std::int32_t k);
  void add_shard(std::int32_t r, std::int32_t c);
  void add_optimizer(std::int32_t r, std::int32_t c);
  void add_predictor(std::int32_t r, const Roster::PredictorSeat& seat);
  void add_servers();
  EvaluationPlan evaluation(std::int32_t r, bool buffers = false) const;
  std::int64_t batches_of(std::int32_t r) const;

  Device device_of(std::int32_t r, std::int32_t k) const {
    return b_.devices[static_cast<std::size_t>(r * stages_ + k)];
  }

  bool served() const { return b_.link.has_value(); }

  /// Modules wait for no later one: what bounds how far the first runs ahead is its data alone.
  bool far_ahead() const { return batches_ahead(b_) > 0; }

  /// Micro-batches between the Source and the chunk that gives it credit.
  std::int32_t window() const {
    return far_ahead() ? batches_ahead(b_) * schedule_.options.micro_batches : kPrefetch;
  }

  /// Each replica ends by itself, the run with the last of them.
  bool ends_apart() const { return hogwild_ || peers_; }

  /// Evaluates on its own account, at its own steps.
  bool marks(std::int32_t r) const { return !served() && !ends_apart() && r == 0; }

  const Blueprint& b_;
  const proto::Experiment& e_;
  const Schedule& schedule_;
  const Roster who_;
  const std::int32_t replicas_;
  const std::int32_t stages_;
  const bool hogwild_;
  const bool peers_;
  const DecoupledScheme* const decoupled_;          // empty: backpropagation
  std::vector<ChunkOptimizer> rules_;               // by chunk
  std::vector<std::vector<std::int64_t>> samples_;  // by replica, where not all are its own
  std::shared_ptr<Shuffles> shuffles_;
  std::vector<std::shared_ptr<SharedWeights>> shared_;  // by chunk: hogwild
  InitialStreams streams_on_;
  Cast cast_;
  bool returns_ = false;  // a replica comes back: its machines go to again_
  std::vector<Cast::Again> again_;
};

Casting::Casting(const Blueprint& blueprint)
    : b_(blueprint),
      e_(b_.experiment),
      schedule_(*b_.schedule),
      who_(b_),
      replicas_(static_cast<std::int32_t>(e_.replicas().count())),
      stages_(schedule_.options.stages),
      hogwild_(shared_by(e_) == Shared::buffer),
      peers_(replicas_ > 1 && exchange_of(e_).peer != nullptr),
      decoupled_(decoupled_of(e_)),
      samples_(static_cast<std::size_t>(replicas_)),
      shuffles_(std::make_shared<Shuffles>(b_.data->size(Split::train), e_.seed())) {
  const proto::Experiment own = own_optimizer(b_);
  const Rate rate = rate_of(b_);
  for (std::int32_t c = 0; c < schedule_.chunks; ++c) {
    const std::int64_t delay = schedule_.delay[static_cast<std::size_t>(c)];
    rules_.emplace_back(own, rate, delay, synchronous_batches(b_));
    shared_.push_back(hogwild_ ? shared_weights(b_, c, streams_on_.on({})) : nullptr);
  }
  if (e_.replicas().split() == proto::Replicas::by_label && replicas_ > 1) {
    samples_ = blocks_by_label(*b_.data, replicas_);
  }
}

Cast Casting::all() {
  for (std::int32_t r = 0; r < replicas_; ++r) {
    add_source(r);
    if (r == 0) {
      add_director();
    }
    add_workers(r);
    for (const Roster::PredictorSeat& predictor : who_.predictors(r)) {
      cast_.starting.push_back(predictor.self.id);
    }
    cast_.starting.push_back(who_.source(r).id);
    for (const auto& stage : who_.stages(r)) {
      cast_.starting.push_back(stage.id);
    }
  }
  if (served()) {
    add_servers();
  }
  if (const auto probe = who_.probe()) {
    add(probe->id, make_probe(b_, streams_on_.on({})), {}, b_.precision);
  }
  cast_.director = who_.director();
  cast_.threads = who_.threads();
  join_extension(cast_, b_, who_);
  streams_on_ = {};
  return std::move(cast_);
}

/// All of a replica but its source.
void Casting::add_workers(std::int32_t r) {
  for (std::int32_t k = 0; k < stages_; ++k) {
    add_stage(r, k);
  }
  for (std::int32_t c = 0; c < schedule_.chunks; ++c) {
    add_shard(r, c);
  }
  for (std::int32_t c = 0; c < schedule_.chunks; ++c) {
    add_optimizer(r, c);
  }
  for (const Roster::PredictorSeat& seat : who_.predictors(r)) {
    add_predictor(r, seat);
  }
}

std::vector<Cast::Again> Casting::again(std::int32_t r) {
  returns_ = true;
  add_source(r);
  add_workers(r);
  streams_on_ = {};
  return std::exchange(again_, {});
}

void Casting::add(ActorId id,
                  std::unique_ptr<Machine> machine,
                  Device device,
                  Precision precision,
                  std::int32_t stage) {
  if (returns_) {
    again_.push_back({id, std::move(machine)});
    return;
  }
  TROUPE_CHECK(id == cast_.members.size(), "members are made in the order of the roster");
  const Roster::Entry& entry = who_.entries()[id];
  cast_.members.push_back({.name = entry.name,
                           .machine = std::move(machine),
                           .thread = entry.thread,
                           .device = device,
                           .precision = precision,
                           .replica = entry.replica,
                           .stage = stage});
}

/// `buffers`: at which of its own steps a stage's buffers will be evaluated. Servers say which of the run's steps are; they
/// are the first replica's, too, where each update takes a mini-batch of every replica, from the first one on.
EvaluationPlan Casting::evaluation(std::int32_t r, bool buffers) const {
  const bool own = r == 0 && b_.batches_per_update == replicas_ && !returns_;
  return marks(r) || (buffers && served() && own) ? evaluation_plan(b_) : EvaluationPlan{};
}

/// Mini-batch b of replica r is number b R + r: how many of the run's are its own? 0: others say.
std::int64_t Casting::batches_of(std::int32_t r) const {
  return served()   ? 0
         : hogwild_ ? b_.batches / replicas_ + (r < b_.batches % replicas_ ? 1 : 0)
                    : b_.batches;
}

void Casting::add_source(std::int32_t r) {
  const std::vector<Ref<StageRole>> stage_of = who_.stage_of_chunks(r, schedule_);
  const bool told = r > 0 && !served() && !ends_apart();
  // Uploads on a stream of its own, while the stage's is at work on what came before.
  add(who_.source(r).id,
      std::make_unique<Source>(Source::Config{
          .replica = r,
          .replicas = replicas_,
          .passed = e_.resumed().mini_batches(),
          .served = served(),
          .samples = samples_[static_cast<std::size_t>(r)],
          .data = b_.data,
          .sizes = b_.sizes,
          .micro_batches = schedule_.options.micro_batches,
          .seed = e_.seed(),
          .shuffles = shuffles_,
          .prefetch = window(),
          .batches = batches_of(r),
          // Where shards talk to one another replica 0 says where the run ends: nobody gets beyond it.
          .seconds = told ? 0 : e_.stop().seconds() - e_.resumed().seconds(),
          .evaluation = evaluation(r),
          .delay_max = schedule_.delay_max,
          .evaluate = marks(r) && e_.record().evaluate(),
          .first = stage_of.front(),
          .head = stage_of.back(),
          .head_chunk = schedule_.chunks - 1,
          .input_predictors = predictors_of(who_, r, true),
          .by_slowest = far_ahead(),
          .buffered = input_buffer(b_) > 0,
          .labelled = label_readers(b_, who_, r),
          .stages = who_.stages(r),
          .shards = who_.shards(r),
          .director = who_.director()}),
      device_of(r, 0),
      Precision::fp32);
}

void Casting::add_director() {
  Company company{.sources = {},
                  .shards = {},
                  .servers = who_.all_servers(),
                  .stages = {},
                  .chunks = schedule_.chunks,
                  .members = who_.all_group_servers()};
  for (std::int32_t r = 0; r < replicas_; ++r) {
    company.sources.push_back(who_.source(r));
    company.stages.push_back(who_.stages(r));
    company.shards.push_back(who_.shards(r));
  }
  Director::Config config{.company = company,
                          .end = nullptr,
                          .replica_of = {},
                          .group_of = who_.members_by_seat(e_),
                          .survives = served() || ends_apart(),
                          .evaluate = e_.record().evaluate(),
                          .target_accuracy = e_.stop().target_accuracy(),
                          .allow_divergence = e_.stop().allow_divergence(),
                          .best = best_evaluation_config(e_),
                          .keeps_best = e_.record().best()};
  if (served()) {
    config.end = std::make_unique<EndAtServers>(company, nobody_waits(b_));
  } else if (peers_) {
    config.end = std::make_unique<EndOfPeers>(company);
  } else if (hogwild_) {
    config.end = std::make_unique<EndOfAll>(company);
  }
  for (const Roster::Entry& entry : who_.entries()) {
    config.replica_of.push_back(entry.replica);
  }
  add(who_.director().id, std::make_unique<Director>(std::move(config)), {}, Precision::fp32);
}

void Casting::add_stage(std::int32_t r, std::int32_t k) {
  const auto at = static_cast<std::size_t>(k);
  std::map<std::int32_t, std::vector<Tensor>> buffers;
  std::map<std::int32_t, std::shared_ptr<const ModuleSignal>> signals;
  for (std::int32_t c = 0; c < schedule_.chunks; ++c) {
    if (schedule_.stage_of(c) == k) {
      Stream& stream = streams_on_.on(device_of(r, k));
      signals[c] = module_signal(b_, static_cast<std::size_t>(c), stream);
      buffers[c] = starting_buffers(stream, b_, static_cast<std::size_t>(c));
    }
  }
  add(who_.stages(r)[at].id,
      std::make_unique<Stage>(Stage::Config{
          .self = who_.stages(r)[at],
          .replica = r,
          .replicas = replicas_,
          .passed = e_.resumed().mini_batches(),
          .served = served() || ends_apart(),
          .stage = k,
          .seed = e_.seed(),
          .sizes = b_.sizes,
          .schedule = b_.schedule,
          .view = b_.view,
          .keep = static_cast<KeepActivations>(e_.pipeline().activations()),
          .gap_every = served() ? 0 : e_.record().gap_every(),
          .chunks = b_.chunks,
          .stage_of = who_.stage_of_chunks(r, schedule_),
          .shard_of = who_.shards(r),
          .evaluation = evaluation(r, true),
          .buffers = std::move(buffers),
          .returns = returns_,
          .credit_chunk = far_ahead() ? schedule_.chunks - 1 : 0,
          .buffer = input_buffer(b_),
          .signals = std::move(signals),
          .influence = decoupled_ && decoupled_->influence,
          .input_predictors = predictors_of(who_, r, true),
          .predictors = predictors_of(who_, r, false),
          .update_probability = decoupled_ ? e_.decoupled().synthetic().update_probability() : 1,
          .tells_signals = e_.decoupled().has_synthetic(),
          .angle_every = e_.record().angle_every(),
          .probe = who_.probe().value_or(Ref<ExtensionRole>{}),
          .source = who_.source(r),
          .director = who_.director()}),
      device_of(r, k),
      b_.precision,
      r * stages_ + k);
}

void Casting::add_shard(std::int32_t r, std::int32_t c) {
  const auto at = static_cast<std::size_t>(c);
  const Device device = device_of(r, schedule_.stage_of(c));
  add(who_.shards(r)[at].id,
      std::make_unique<ParameterShard>(
          ParameterShard::Config{.self = who_.shards(r)[at],
                                 .chunk = c,
                                 .optimizer = who_.optimizers(r)[at],
                                 .plan = b_.plans[at],
                                 .clip_norm = e_.optimizer().clip_norm(),
                                 .clip_globally = schedule_.flushed,
                                 .shards = who_.shards(r),
                                 .evaluation = evaluation(r),
                                 .director = who_.director(),
                                 .initial = starting_slices(streams_on_.on(device), b_, at),
                                 .returns = returns_,
                                 .tied = tied_shares(b_, c),
                                 .exchange = make_exchange(b_, who_, rules_[at], r, c)}),
      device,
      b_.precision);
}

void Casting::add_predictor(std::int32_t r, const Roster::PredictorSeat& seat) {
  const std::int32_t k = schedule_.stage_of(seat.chunk);
  const Device device = device_of(r, k);
  PredictorMachines made = make_predictor(b_, who_, r, seat, streams_on_.on(device));
  add(seat.self.id, std::move(made.predictor), device, b_.precision, r * stages_ + k);
  add(seat.shard.id, std::move(made.shard), device, b_.precision);
  add(seat.optimizer.id, std::move(made.optimizer), device, b_.precision);
}

void Casting::add_optimizer(std::int32_t r, std::int32_t c) {
  const auto at = static_cast<std::size_t>(c);
  const std::int32_t k = schedule_.stage_of(c);
  add(who_.optimizers(r)[at].id,
      std::make_unique<Optimizer>(
          Optimizer::Config{.replica = r,
                            .stage = k,
                            .rule = rules_[at],
                            .layout = b_.chunks[at]->layout(),
                            .slim = slim_numbers(e_, 0, schedule_.delay[at]),
                            .up = up_links(b_, r, c),
                            .shared = shared_[at]}),
      device_of(r, k),
      b_.precision);
}

void Casting::add_servers() {
  for (std::int32_t c = 0; c < schedule_.chunks; ++c) {
    const Device device = device_of(0, schedule_.stage_of(c));
    auto initial = starting_slices(streams_on_.on(device), b_, static_cast<std::size_t>(c));
    for (std::size_t s = 0; s < initial.size(); ++s) {
      ServerMachines made = make_server(b_, who_, c, s, initial[s]);
      add(who_.servers(c)[s].id, std::move(made.shard), device, b_.precision);
      add(who_.server_optimizer(c, s).id, std::move(made.optimizer), device, b_.precision);
      for (std::size_t g = 0; g < who_.groups(c, s).size(); ++g) {
        const Roster::GroupSeat& seat = who_.groups(c, s)[g];
        ServerMachines group =
            make_group_server(b_, who_, c, s, static_cast<std::int32_t>(g), initial[s]);
        add(seat.server.id, std::move(group.shard), device, b_.precision);
        add(seat.optimizer.id, std::move(group.optimizer), device, b_.precision);
      }
    }
  }
}

}  // namespace

Cast build_cast(const Blueprint& blueprint) {
  const auto casting = std::make_shared<Casting>(blueprint);
  Cast cast = casting->all();
  if (blueprint.link) {
    cast.again = [casting](std::int32_t replica) {
      return casting->again(replica);
    };
  }
  return cast;
}

}  // namespace troupe
