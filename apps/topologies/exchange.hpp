// Which Exchange a replica's shard gets: what stands between it and the other replicas.
#pragma once

#include "actors/exchange/exchange.hpp"
#include "actors/exchange/shared_weights.hpp"
#include "apps/topologies/roster.hpp"
#include "runtime/schemes/codecs/codec.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

/// Of the shard of chunk `c` in replica `r`, whose optimizer is `rule`. `shared`: what hogwild's replicas write to.
std::unique_ptr<Exchange> make_exchange(const Blueprint& blueprint,
                                        const Roster& who,
                                        const ChunkOptimizer& rule,
                                        std::shared_ptr<const SharedWeights> shared,
                                        std::int32_t r,
                                        std::int32_t c);

/// What gradients or changes of slice `s` of chunk `c` go through on their way to the server (of groups, from their
/// servers to the one of all) or to peers; empty: they travel as they are.
std::shared_ptr<const Codec> up_codec(const Blueprint& blueprint, std::int32_t c, std::size_t s);

/// What the server of slice `s` of chunk `c` answers with; empty: weights as they are.
DownLink down_link(const Blueprint& blueprint, std::int32_t c, std::size_t s);

/// The end of the link up from slice `s` of chunk `c` of replica `sender`, or of the server of group `sender`; empty
/// where nothing is encoded.
CodedLink up_link(const Blueprint& blueprint, std::int32_t sender, std::int32_t c, std::size_t s);

/// Replica r's ends of the links up from chunk `c`, or to its peers, by slice; none where nothing is
/// encoded, or only what the servers of groups send.
std::vector<CodedLink> up_links(const Blueprint& blueprint, std::int32_t r, std::int32_t c);

/// The optimizer that a replica has where servers make the updates: between two fetches it moves by
/// its own gradients (Dean et al. 2012), with no memory of them.
proto::Experiment own_optimizer(const Blueprint& blueprint);

/// What chunk `c` starts with, in buffers that all replicas write to (hogwild).
std::shared_ptr<SharedWeights> shared_weights(const Blueprint& blueprint,
                                              std::int32_t c,
                                              Stream& stream);

/// Of replicas that share servers: none of them waits for what the run's own servers make.
bool nobody_waits(const Blueprint& blueprint);

/// How many parts of its gradient the shard of chunk `owner` gets from other chunks.
std::size_t tied_shares(const Blueprint& blueprint, std::int32_t owner);

}  // namespace troupe
