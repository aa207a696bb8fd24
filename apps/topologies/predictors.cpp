#include "apps/topologies/predictors.hpp"

#include "actors/exchange/alone.hpp"

namespace troupe {

PredictorMachines make_predictor(
    const Blueprint& b, const Roster& who, std::int32_t r, std::int32_t c, Stream& stream) {
  const proto::Experiment& e = b.experiment;
  const proto::Synthetic& options = e.decoupled().synthetic();
  const PredictorPlan plan = *predictor_plan(e);
  const auto at = static_cast<std::size_t>(c);
  const Roster::PredictorSeat& seat = who.predictors(r)[at];
  const std::int32_t k = b.schedule->stage_of(c);
  const std::shared_ptr<const Chunk>& model = b.predictors[at];
  const Rate rate(optimizer_of(b), b.batches, {}, rate_factor(e) * options.rate_factor());
  const ChunkOptimizer rule(e, rate, 0, 0);
  return {.predictor = std::make_unique<Predictor>(
              Predictor::Config{.self = seat.self,
                                .replica = r,
                                .chunk = c,
                                .stage = k,
                                .seed = e.seed(),
                                .micro_batches = b.schedule->options.micro_batches,
                                .lambda = options.lambda(),
                                .classes = plan.conditioned ? b.data->classes() : 0,
                                .head = plan.head,
                                .model = model,
                                .buffers = model->initial_buffers(stream),
                                .module = who.stage_of_chunks(r, *b.schedule)[at],
                                .shard = seat.shard}),
          .shard = std::make_unique<ParameterShard>(
              ParameterShard::Config{.self = seat.shard,
                                     .chunk = c,
                                     .optimizer = seat.optimizer,
                                     .plan = {},
                                     .shards = {},
                                     .evaluation = {},
                                     .director = who.director(),
                                     .initial = model->initial_slices(stream, e.seed()),
                                     .exchange = std::make_unique<Aside>(rule)}),
          .optimizer = std::make_unique<Optimizer>(Optimizer::Config{
              .replica = r, .stage = k, .rule = rule, .layout = model->layout()})};
}

std::vector<Ref<StageRole>> predictors_of(const Roster& who, std::int32_t r) {
  std::vector<Ref<StageRole>> all;
  for (const Roster::PredictorSeat& seat : who.predictors(r)) {
    all.push_back(seat.self);
  }
  return all;
}

std::vector<Ref<StageRole>> label_readers(const Blueprint& b, const Roster& who, std::int32_t r) {
  std::vector<Ref<StageRole>> all;
  if (b.schedule->signal_from == SignalFrom::nobody) {
    all = who.stage_of_chunks(r, *b.schedule);
    all.pop_back();
  } else if (const auto plan = predictor_plan(b.experiment);
             plan && (plan->conditioned || plan->head)) {
    all = predictors_of(who, r);
  }
  return all;
}

}  // namespace troupe
