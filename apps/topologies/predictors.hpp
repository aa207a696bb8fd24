// Predictors of error signals, each with a shard and an optimizer of its own, and who hears labels.
#pragma once

#include "actors/optimizer.hpp"
#include "actors/parameter_shard.hpp"
#include "actors/predictor.hpp"
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

/// Of module `c` of replica `r`. `stream`: to make its first weights on. No exchange and no evaluation
/// knows the shard: replicas have predictors of their own.
PredictorMachines make_predictor(
    const Blueprint& blueprint, const Roster& who, std::int32_t r, std::int32_t c, Stream& stream);

/// By module but the last; or empty.
std::vector<Ref<StageRole>> predictors_of(const Roster& who, std::int32_t r);

/// By module but the last: who wants the labels beside the head; or empty.
std::vector<Ref<StageRole>> label_readers(const Blueprint& blueprint,
                                          const Roster& who,
                                          std::int32_t r);

}  // namespace troupe
