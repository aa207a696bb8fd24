// The machines of a cast, one function each.
#include "actors/pipeline/optimizer.hpp"
#include "actors/pipeline/parameter_shard.hpp"
#include "actors/pipeline/source.hpp"
#include "actors/pipeline/stage.hpp"
#include "actors/run/director.hpp"
#include "apps/topologies/casting.hpp"
#include "apps/topologies/exchange.hpp"
#include "apps/topologies/hosts.hpp"
#include "apps/topologies/probe.hpp"
#include "apps/topologies/servers.hpp"
#include "experiment/decoupled.pb.h"
#include "experiment/pipeline.pb.h"
#include "experiment/run.pb.h"
#include "messages/sections.hpp"

#include <map>
#include <utility>

namespace troupe {

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
  const auto parts = [&](std::int32_t first_chunk) {  // of a section
    std::vector<std::vector<Ref<StageRole>>> all;
    for (std::int32_t chunk = first_chunk; chunk < first_chunk + schedule_.width; ++chunk) {
      auto& stages = all.emplace_back();
      for (std::int32_t turn = 0; turn < schedule_.copies_of(chunk); ++turn) {
        stages.push_back(who_.stages(r)[static_cast<std::size_t>(schedule_.in_turn(chunk, turn))]);
      }
    }
    return all;
  };
  const bool told = r > 0 && !served() && !ends_apart();
  // Uploads on a stream of its own, while the stage's is at work on what came before.
  add(who_.source(r).id,
      std::make_unique<Source>(Source::Config{
          .replica = r,
          .replicas = replicas_,
          .passed = sections::resumed(e_).mini_batches(),
          .served = served(),
          .samples = samples_[static_cast<std::size_t>(r)],
          .data = b_.data,
          .sizes = b_.sizes,
          .micro_batches = schedule_.options.micro_batches,
          .seed = sections::seed(e_),
          .shuffles = shuffles_,
          .prefetch = window(),
          .batches = batches_of(r),
          // Where shards talk to one another replica 0 says where the run ends: nobody gets beyond it.
          .seconds = told ? 0 : sections::stop(e_).seconds() - sections::resumed(e_).seconds(),
          .evaluation = evaluation(r),
          .delay_max = schedule_.delay_max,
          .evaluate = marks(r) && sections::record(e_).evaluate(),
          .first = parts(0),
          .heads = parts(schedule_.chunks - schedule_.width),
          .head_chunk = schedule_.chunks - schedule_.width,
          .credit_chunk = credit_chunk(),
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
                          .evaluate = sections::record(e_).evaluate(),
                          .target_accuracy = sections::stop(e_).target_accuracy(),
                          .allow_divergence = sections::stop(e_).allow_divergence(),
                          .best = best_evaluation_config(e_),
                          .keeps_best = sections::record(e_).best()};
  if (served()) {
    config.end = std::make_unique<EndAtServers>(company, nobody_waits(b_));
  } else if (peers_) {
    config.end = std::make_unique<EndOfPeers>(company);
    config.each = static_cast<EachReplica>(sections::record(e_).each_replica());
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
    if (schedule_.works_on(k, c)) {
      Stream& stream = streams_on_.on(device_of(r, k));
      signals[c] = module_signal(b_, static_cast<std::size_t>(c), stream);
      buffers[c] = starting_buffers(stream, b_, static_cast<std::size_t>(c));
    }
  }
  std::optional<DecoupledModules::Config> modules;
  if (decoupled_) {
    modules = {.from = schedule_.signal_from,
               .replica = r,
               .seed = sections::seed(e_),
               .stage_of = who_.stage_of_chunks(r, schedule_),
               .buffer = input_buffer(b_),
               .signals = std::move(signals),
               .influence = decoupled_->influence,
               .input_predictors = predictors_of(who_, r, true),
               .predictors = predictors_of(who_, r, false),
               .update_probability = sections::decoupled(e_).synthetic().update_probability(),
               .records_signals = sections::decoupled(e_).has_synthetic()};
  }
  std::optional<AngleNotes::Config> angle;
  if (const std::int64_t every = sections::record(e_).angle_every(); every > 0) {
    angle = {.every = every,
             .probe = who_.probe().value_or(Ref<ExtensionRole>{}),
             .replica = r,
             .head = schedule_.chunks - 1};
  }
  add(who_.stages(r)[at].id,
      std::make_unique<Stage>(Stage::Config{
          .company = {.self = who_.stages(r)[at],
                      .stages = who_.stages(r),
                      .shard_of = who_.shards(r),
                      .source = who_.source(r),
                      .director = who_.director()},
          .replica = r,
          .stage = k,
          .served = served() || ends_apart(),
          .returns = returns_,
          .samples = {.sizes = b_.sizes,
                      .passed = sections::resumed(e_).mini_batches(),
                      .replicas = replicas_,
                      .seed = sections::seed(e_)},
          .schedule = b_.schedule,
          .view = b_.view,
          .keep = static_cast<KeepActivations>(sections::pipeline(e_).activations()),
          .gap_every = served() ? 0 : sections::record(e_).gap_every(),
          .chunks = b_.chunks,
          .statistics = {.evaluation = evaluation(r, true), .initial = std::move(buffers)},
          .credit_chunk = credit_chunk(),
          .modules = std::move(modules),
          .angle = angle}),
      device_of(r, k),
      b_.precision,
      r * stages_ + k);
}

/// Whose gradients are clipped by one norm: all chunks', but where that would be a flush; then those that a chunk was cut
/// into in width.
std::vector<Ref<ShardRole>> Casting::clip_with(std::int32_t r, std::int32_t c) const {
  std::vector<Ref<ShardRole>> all = who_.shards(r);
  if (schedule_.flushed) {
    return all;
  }
  if (!b_.grid) {
    return {};
  }
  std::int32_t first = 0;
  std::int32_t end = 0;
  for (const std::int32_t sections : b_.grid->sections) {
    first = end;
    end += sections * schedule_.width;
    if (c < end) {
      break;
    }
  }
  return {all.begin() + first, all.begin() + end};
}

void Casting::add_shard(std::int32_t r, std::int32_t c) {
  const auto at = static_cast<std::size_t>(c);
  const Device device = device_of(r, schedule_.stage_of(c));
  std::vector<Tensor>& starting = starting_[{device, at}];
  if (starting.empty()) {
    starting = starting_slices(streams_on_.on(device), b_, at);
  }
  add(who_.shards(r)[at].id,
      std::make_unique<ParameterShard>(
          ParameterShard::Config{.self = who_.shards(r)[at],
                                 .chunk = c,
                                 .optimizer = who_.optimizers(r)[at],
                                 .layout = slice_layout(b_.chunks[at]->layout()),
                                 .plan = b_.plans[at],
                                 .clip_norm = clip_norm_of(e_),
                                 .clip_with = clip_with(r, c),
                                 .evaluation = evaluation(r),
                                 .director = who_.director(),
                                 .initial = starting,
                                 .returns = returns_ && served(),
                                 .tied = tied_shares(b_, c),
                                 .round = schedule_.round_of(c),
                                 .exchange = make_exchange(b_, who_, rules_[at], shared_, r, c)}),
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
                            .rebases = b_.link && b_.link->rebases(),
                            .up = up_links(b_, r, c),
                            .shared = shared_.weights[at]}),
      device_of(r, k),
      b_.precision);
}

void Casting::add_servers() {
  for (ServerSeat& seat : make_servers(b_, who_, streams_on_)) {
    add(seat.id, std::move(seat.machine), seat.device, b_.precision);
  }
}

}  // namespace troupe
