// Which Exchange a replica's shard gets: what stands between it and the other replicas.
#pragma once

#include "actors/exchange/exchange.hpp"
#include "apps/topologies/roster.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace troupe {

/// Of the shard of chunk `c` in replica `r`, whose optimizer is `rule`.
std::unique_ptr<Exchange> make_exchange(const Blueprint& blueprint,
                                        const Roster& who,
                                        const ChunkOptimizer& rule,
                                        std::int32_t r,
                                        std::int32_t c);

/// The optimizer that a replica has where servers make the updates: between two fetches it moves by
/// its own gradients (Dean et al. 2012), with no memory of them.
proto::Experiment own_optimizer(const Blueprint& blueprint);

/// How many parts of its gradient the shard of chunk `owner` gets from other chunks.
std::size_t tied_shares(const Blueprint& blueprint, std::int32_t owner);

}  // namespace troupe
