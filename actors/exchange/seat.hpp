// Where a PeerExchange stands: what the factory of a registered exchange gets
// (runtime/schemes/exchanges/exchange.hpp).
#pragma once

#include "messages/proto.hpp"
#include "runtime/schemes/codecs/codec.hpp"
#include "runtime/schemes/evaluation.hpp"
#include "runtime/schemes/optimizers/chunk_optimizer.hpp"
#include "runtime/schemes/registry.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

struct ExchangeSeat {
  std::int32_t replica = 0;
  std::int32_t chunk = 0;
  ChunkOptimizer rule;                // whose rate its replica's own updates have
  std::vector<Ref<ShardRole>> peers;  // the same chunk's shards, by replica, itself among them
  OptionValues options;               // as replicas.exchange.custom.values gives them
  std::uint64_t seed = 1;             // of the run
  EvaluationPlan evaluation;
  bool mean = true;  // evaluations read the mean of the replicas' weights; else the evaluator's own
  Ref<DirectorRole> director;
  /// That each replica makes where nothing ends the run before; 0: not known.
  std::int64_t batches = 0;
  /// By slice: what its peers are told goes through (ExchangeScheme::codec_between_peers); empty: as it is.
  std::vector<CodedLink> links{};
  /// Resolved; alive while the factory runs. A built-in exchange reads its own keys there.
  const proto::Experiment* experiment = nullptr;
};

}  // namespace troupe
