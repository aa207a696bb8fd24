// Predictors of error signals and of inputs, each with a shard and an optimizer of its own, and who
// hears labels.
#pragma once

#include "actors/pipeline/optimizer.hpp"
#include "actors/pipeline/parameter_shard.hpp"
#include "actors/pipeline/predictor.hpp"
#include "apps/topologies/roster.hpp"

#include <memory>
#include <vector>

namespace troupe {

struct PredictorMachines {
  std::unique_ptr<Predictor> predictor;
  std::unique_ptr<ParameterShard> shard;
  std::unique_ptr<Optimizer> optimizer;
};

/// What estimates error signals, or the head of a module's own: one for each module but the last, where
/// modules have such. The blueprint is cut.
std::vector<std::shared_ptr<const Chunk>> predictor_chunks(const Blueprint& blueprint);

/// What estimates inputs: one for each module but the first, where modules have such. As above.
std::vector<std::shared_ptr<const Chunk>> input_predictor_chunks(const Blueprint& blueprint);

/// PredictorPlan::buffer; 0 where modules have no predictors.
std::int64_t input_buffer(const Blueprint& blueprint);

/// Of methods whose modules wait for no later one: mini-batches that may be under way from the first
/// module to the last; 0: no bound, and of other methods.
std::int32_t batches_ahead(const Blueprint& blueprint);

/// Of replica `r`. `stream`: to make its first weights on. No exchange and no evaluation knows the
/// shard: replicas have predictors of their own.
PredictorMachines make_predictor(const Blueprint& blueprint,
                                 const Roster& who,
                                 std::int32_t r,
                                 const Roster::PredictorSeat& seat,
                                 Stream& stream);

/// Of error signals by module but the last, or of inputs by module but the first; or empty.
std::vector<Ref<PredictorRole>> predictors_of(const Roster& who, std::int32_t r, bool of_input);

/// By module but the last: who wants the labels beside the head; or empty.
std::vector<Ref<LearnerRole>> label_readers(const Blueprint& blueprint,
                                            const Roster& who,
                                            std::int32_t r);

}  // namespace troupe
