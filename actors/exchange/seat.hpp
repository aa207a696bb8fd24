// Where an Exchange of one's own stands: what the factory of a registered exchange gets
// (runtime/schemes/exchange.hpp).
#pragma once

#include "actors/exchange/exchange.hpp"
#include "runtime/schemes/chunk_optimizer.hpp"
#include "runtime/schemes/registry.hpp"

#include <vector>

namespace troupe {

struct ExchangeSeat {
  Ref<ShardRole> self;
  std::int32_t replica = 0;
  std::int32_t chunk = 0;
  Ref<OptimizerRole> optimizer;
  ChunkOptimizer rule;                // whose rate its replica's own updates have
  std::vector<Ref<ShardRole>> peers;  // the same chunk's shards, by replica, itself among them
  OptionValues options;               // as replicas.exchange.custom.values gives them
};

}  // namespace troupe
