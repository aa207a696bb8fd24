#include "apps/topologies/cast.hpp"

#include "actors/director.hpp"
#include "actors/exchange/alone.hpp"
#include "actors/exchange/reduction.hpp"
#include "actors/exchange/seat.hpp"
#include "actors/exchange/shared_buffer.hpp"
#include "actors/exchange/upstream.hpp"
#include "actors/optimizer.hpp"
#include "actors/parameter_shard.hpp"
#include "actors/server_optimizer.hpp"
#include "actors/server_shard.hpp"
#include "actors/source.hpp"
#include "actors/stage.hpp"
#include "apps/topologies/roster.hpp"
#include "runtime/data/sharding.hpp"

#include <map>
#include <set>
#include <utility>

namespace troupe {
namespace {

constexpr std::int32_t kPrefetch = 4;  // micro-batches between Source and first stage

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
proto::Experiment own_optimizer(const Blueprint& b) {
  proto::Experiment own = b.experiment;
  if (b.link && b.link->steps && b.link->travel == Travel::gradient) {
    own.mutable_optimizer()->set_rule(proto::OptimizerRule::sgd);
  }
  return own;
}

/// How many parts of its gradient a chunk's shard gets from other chunks.
std::size_t tied_shares(const Blueprint& b, std::int32_t owner) {
  std::size_t shares = 0;
  for (const auto& chunk : b.chunks) {
    for (const BorrowedSlice& slice : chunk->borrowed()) {
      shares += slice.owner == owner ? 1 : 0;
    }
  }
  return shares;
}

/// Makes the members of a cast, in the order of the roster.
class Casting {
 public:
  explicit Casting(const Blueprint& blueprint);

  Cast all();

 private:
  void add(ActorId id,
           std::unique_ptr<Machine> machine,
           Device device,
           Precision precision,
           std::int32_t stage = -1);
  void add_source(std::int32_t r);
  void add_director();
  void add_stage(std::int32_t r, std::int32_t k);
  void add_shard(std::int32_t r, std::int32_t c);
  void add_optimizer(std::int32_t r, std::int32_t c);
  void add_server(std::int32_t c, std::size_t s, Tensor initial);
  void add_servers();
  std::unique_ptr<Exchange> exchange(std::int32_t r, std::int32_t c) const;
  std::shared_ptr<SharedWeights> shared_weights(std::int32_t c);
  std::int64_t pins_between() const;
  EvaluationPlan evaluation(std::int32_t r) const;
  std::int64_t batches_of(std::int32_t r) const;

  Device device_of(std::int32_t r, std::int32_t k) const {
    return b_.devices[static_cast<std::size_t>(r * stages_ + k)];
  }

  bool served() const { return b_.link.has_value(); }

  /// Evaluates on its own account, at its own steps.
  bool marks(std::int32_t r) const { return !served() && !hogwild_ && r == 0; }

  const Blueprint& b_;
  const proto::Experiment& e_;
  const Schedule& schedule_;
  const Roster who_;
  const std::int32_t replicas_;
  const std::int32_t stages_;
  const bool hogwild_;
  const std::optional<ReductionKind> reduction_;
  const Rate rate_;
  std::vector<ChunkOptimizer> rules_;               // by chunk
  std::vector<std::vector<std::int64_t>> samples_;  // by replica, where not all are its own
  std::shared_ptr<Shuffles> shuffles_;
  std::vector<std::shared_ptr<SharedWeights>> shared_;  // by chunk: hogwild
  Streams streams_on_;
  Cast cast_;
};

Casting::Casting(const Blueprint& blueprint)
    : b_(blueprint),
      e_(b_.experiment),
      schedule_(*b_.schedule),
      who_(b_),
      replicas_(static_cast<std::int32_t>(e_.replicas().count())),
      stages_(schedule_.options.stages),
      hogwild_(shared_by(e_) == Shared::buffer),
      reduction_(reduction_of(e_)),
      rate_(rate_of(b_)),
      samples_(static_cast<std::size_t>(replicas_)),
      shuffles_(std::make_shared<Shuffles>(b_.data->size(Split::train), e_.seed())) {
  const proto::Experiment own = own_optimizer(b_);
  for (std::int32_t c = 0; c < schedule_.chunks; ++c) {
    const std::int64_t delay = schedule_.delay[static_cast<std::size_t>(c)];
    rules_.emplace_back(own, rate_, delay, schedule_.options.synchronous_batches);
    shared_.push_back(hogwild_ ? shared_weights(c) : nullptr);
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
    for (std::int32_t k = 0; k < stages_; ++k) {
      add_stage(r, k);
    }
    for (std::int32_t c = 0; c < schedule_.chunks; ++c) {
      add_shard(r, c);
    }
    for (std::int32_t c = 0; c < schedule_.chunks; ++c) {
      add_optimizer(r, c);
    }
    cast_.starting.push_back(who_.source(r).id);
    for (const auto& stage : who_.stages(r)) {
      cast_.starting.push_back(stage.id);
    }
  }
  if (served()) {
    add_servers();
  }
  cast_.director = who_.director();
  cast_.threads = who_.threads();
  return std::move(cast_);
}

void Casting::add(ActorId id,
                  std::unique_ptr<Machine> machine,
                  Device device,
                  Precision precision,
                  std::int32_t stage) {
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

EvaluationPlan Casting::evaluation(std::int32_t r) const {
  return {marks(r) ? b_.evaluate_every : 0};
}

/// Mini-batch b of replica r is number b R + r: how many of the run's are its own? 0: others say.
std::int64_t Casting::batches_of(std::int32_t r) const {
  if (served()) {
    return 0;
  }
  return hogwild_ ? b_.batches / replicas_ + (r < b_.batches % replicas_ ? 1 : 0) : b_.batches;
}

void Casting::add_source(std::int32_t r) {
  const std::vector<Ref<StageRole>> stage_of = who_.stage_of_chunks(r, schedule_);
  const bool together = !served() && !hogwild_;
  // Uploads on a stream of its own, while the stage's is at work on what came before.
  add(who_.source(r).id,
      std::make_unique<Source>(Source::Config{
          .replica = r,
          .replicas = replicas_,
          .served = served(),
          .samples = samples_[static_cast<std::size_t>(r)],
          .data = b_.data,
          .sizes = b_.sizes,
          .micro_batches = schedule_.options.micro_batches,
          .seed = e_.seed(),
          .shuffles = shuffles_,
          .prefetch = kPrefetch,
          .batches = batches_of(r),
          // Where shards talk to one another replica 0 says where the run ends: nobody
          // gets beyond it.
          .seconds = together && r > 0 ? 0 : e_.stop().seconds(),
          .evaluation = evaluation(r),
          .delay_max = schedule_.delay_max,
          .evaluate = marks(r) && e_.record().evaluate(),
          .first = stage_of.front(),
          .head = stage_of.back(),
          .head_chunk = schedule_.chunks - 1,
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
                  .chunks = schedule_.chunks};
  for (std::int32_t r = 0; r < replicas_; ++r) {
    company.sources.push_back(who_.source(r));
    company.stages.push_back(who_.stages(r));
    company.shards.push_back(who_.shards(r));
  }
  Director::Config config{.company = company,
                          .end = nullptr,
                          .replica_of = {},
                          .survives = served() || hogwild_,
                          .evaluate = e_.record().evaluate(),
                          .target_accuracy = e_.stop().target_accuracy(),
                          .allow_divergence = e_.stop().allow_divergence()};
  if (served()) {
    config.end = std::make_unique<EndAtServers>(company);
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
  for (std::int32_t c = 0; c < schedule_.chunks; ++c) {
    if (schedule_.stage_of(c) == k) {
      buffers[c] =
          starting_buffers(streams_on_.on(device_of(r, k)), b_, static_cast<std::size_t>(c));
    }
  }
  add(who_.stages(r)[at].id,
      std::make_unique<Stage>(
          Stage::Config{.self = who_.stages(r)[at],
                        .replica = r,
                        .replicas = replicas_,
                        .served = served() || hogwild_,
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
                        .evaluation = evaluation(r),
                        .buffers = std::move(buffers),
                        .source = who_.source(r),
                        .director = who_.director()}),
      device_of(r, k),
      b_.precision,
      r * stages_ + k);
}

std::unique_ptr<Exchange> Casting::exchange(std::int32_t r, std::int32_t c) const {
  const auto at = static_cast<std::size_t>(c);
  const Ref<ShardRole> self = who_.shards(r)[at];
  const Ref<OptimizerRole> optimizer = who_.optimizers(r)[at];
  if (served()) {
    return std::make_unique<Upstream>(Upstream::Config{.self = self,
                                                       .replica = r,
                                                       .chunk = c,
                                                       .optimizer = optimizer,
                                                       .rule = rules_[at],
                                                       .link = *b_.link,
                                                       .servers = who_.servers(c),
                                                       .tied = tied_shares(b_, c) > 0});
  }
  if (hogwild_) {
    return std::make_unique<SharedBufferExchange>(
        SharedBufferExchange::Config{.self = self,
                                     .replica = r,
                                     .chunk = c,
                                     .optimizer = optimizer,
                                     .rule = rules_[at],
                                     .evaluation = {b_.evaluate_every},
                                     .updates = b_.batches,
                                     .director = who_.director()});
  }
  if (reduction_) {
    return std::make_unique<Reduction>(rules_[at],
                                       GradientSum::Config{.self = self,
                                                           .optimizer = optimizer,
                                                           .how = *reduction_,
                                                           .replica = r,
                                                           .peers = who_.peers(c)});
  }
  const ExchangeScheme& scheme = exchange_of(e_);
  if (!scheme.seat || replicas_ == 1) {
    return std::make_unique<Alone>(rules_[at]);
  }
  const OptionValues options(scheme.info.options, e_.replicas().exchange().custom());
  auto own = scheme.seat({.self = self,
                          .replica = r,
                          .chunk = c,
                          .optimizer = optimizer,
                          .rule = rules_[at],
                          .peers = who_.peers(c),
                          .options = options});
  TROUPE_CHECK(own, "exchange ", scheme.info.name, ": its factory made nothing");
  return own;
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
                                 .tied = tied_shares(b_, c),
                                 .exchange = exchange(r, c)}),
      device,
      b_.precision);
}

/// What chunk `c` starts with, in buffers that all replicas write to.
std::shared_ptr<SharedWeights> Casting::shared_weights(std::int32_t c) {
  auto shared = std::make_shared<SharedWeights>();
  shared->add = e_.replicas().exchange().hogwild().add() == proto::Hogwild::racy
                    ? SharedAdd::racy
                    : SharedAdd::atomic;
  Stream& stream = streams_on_.on({});
  for (const Tensor& slice : starting_slices(stream, b_, static_cast<std::size_t>(c))) {
    shared->slices.push_back(std::make_unique<SharedBuffer>(slice.elements(), replicas_));
    shared_store(stream, *shared->slices.back(), slice);
  }
  return shared;
}

void Casting::add_optimizer(std::int32_t r, std::int32_t c) {
  const auto at = static_cast<std::size_t>(c);
  const std::int32_t k = schedule_.stage_of(c);
  add(who_.optimizers(r)[at].id,
      std::make_unique<Optimizer>(Optimizer::Config{.replica = r,
                                                    .stage = k,
                                                    .rule = rules_[at],
                                                    .layout = b_.chunks[at]->layout(),
                                                    .slim = slim_numbers(e_, 0),
                                                    .shared = shared_[at]}),
      device_of(r, k),
      b_.precision);
}

void Casting::add_servers() {
  for (std::int32_t c = 0; c < schedule_.chunks; ++c) {
    Stream& stream = streams_on_.on(device_of(0, schedule_.stage_of(c)));
    std::vector<Tensor> initial = starting_slices(stream, b_, static_cast<std::size_t>(c));
    for (std::size_t s = 0; s < initial.size(); ++s) {
      add_server(c, s, std::move(initial[s]));
    }
  }
}

/// Evaluations that may be due between the steps of two servers. Each applies what comes to it, so one
/// is ahead of another by the pushes of mini-batches of which a part is under way.
std::int64_t Casting::pins_between() const {
  const std::int64_t every = b_.evaluate_every;
  if (every == 0 || who_.all_servers().size() == 1) {
    return 0;
  }
  const std::int64_t of_a_replica = schedule_.delay_max + 1 + b_.link->push_every;
  const std::int64_t steps = replicas_ * of_a_replica / b_.batches_per_update + 1;
  return steps / every + 1;
}

void Casting::add_server(std::int32_t c, std::size_t s, Tensor initial) {
  const std::int32_t k = schedule_.stage_of(c);
  const RuleContext context = rule_context(b_, c, s);
  std::int64_t parameters = 0;
  for (const RuleContext::Part& part : context.parts) {
    parameters += part.shape.elements();
  }
  Rule rule = make_rule(context);
  const Link& link = *b_.link;
  const Ref<ServerRole> self = who_.servers(c)[s];
  const std::vector<Ref<ServerRole>> all = who_.all_servers();
  // The last chunk's server hears first of a mini-batch's gradients.
  const Ref<ServerRole> decider = who_.servers(schedule_.chunks - 1).front();
  const bool one_decides = all.size() > 1 && (rule.admission->servers_may_differ() || link.dynamic);
  std::vector<Ref<ServerRole>> followers;
  if (one_decides && self.id == decider.id) {
    std::copy_if(all.begin(), all.end(), std::back_inserter(followers), [&](const auto& one) {
      return one.id != decider.id;
    });
  }
  add(who_.servers(c)[s].id,
      std::make_unique<ServerShard>(ServerShard::Config{
          .self = self,
          .chunk = c,
          .slice = s,
          .optimizer = who_.server_optimizer(c, s),
          .admission = std::move(rule.admission),
          .needs_read = rule.scale->needs_read(),
          .rate = rate_,
          .replicas_step = link.steps && link.travel != Travel::gradient,
          .reaches = link.steps ? std::vector<Reach>{}
                                : all_reaches(b_.plans[static_cast<std::size_t>(c)]),
          .replicas = who_.peers(c),
          .batches_per_update = b_.batches_per_update,
          .updates = b_.batches,
          .evaluation = {e_.record().evaluate() ? b_.evaluate_every : 0},
          .gap_every = e_.record().gap_every(),
          .period = link.dynamic ? link.push_every : 0,
          .streams = link.streams,
          .together = !schedule_.flushed && schedule_.chunks > stages_,
          .followers = std::move(followers),
          .follows = one_decides && self.id != decider.id,
          .pins_between = one_decides ? 0 : pins_between(),
          .announces = c == 0 && s == 0,
          .director = who_.director(),
          .initial = std::move(initial)}),
      device_of(0, k),
      b_.precision);
  add(who_.server_optimizer(c, s).id,
      std::make_unique<ServerOptimizer>(ServerOptimizer::Config{.stage = k,
                                                                .parameters = parameters,
                                                                .scale = std::move(rule.scale),
                                                                .step = std::move(rule.step)}),
      device_of(0, k),
      b_.precision);
}

}  // namespace

Cast build_cast(const Blueprint& blueprint) {
  return Casting(blueprint).all();
}

}  // namespace troupe
