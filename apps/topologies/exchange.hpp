// Which Exchange a replica's shard gets: what stands between it and the other replicas.
#pragma once

#include "actors/exchange/exchange.hpp"
#include "actors/exchange/group_sums.hpp"
#include "actors/exchange/shared_weights.hpp"
#include "apps/topologies/roster.hpp"
#include "runtime/schemes/codecs/codec.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// What the shards of a chunk have in common, as far as they play in this process; by chunk.
struct SharedByReplicas {
  std::vector<std::shared_ptr<SharedWeights>> weights{};  // hogwild
  std::vector<std::shared_ptr<GroupSums>> sums{};         // sums by GPUs at the same time
};

/// Of the shard of chunk `c` in replica `r`, whose optimizer is `rule`.
std::unique_ptr<Exchange> make_exchange(const Blueprint& blueprint,
                                        const Roster& who,
                                        const ChunkOptimizer& rule,
                                        const SharedByReplicas& shared,
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

/// Where the replicas' GPUs sum up the gradients of chunk `c`.
std::shared_ptr<GroupSums> group_sums(const Blueprint& blueprint, std::int32_t c);

/// Error (usage) where the GPUs of the replicas cannot sum up their gradients together (synchronous.reduction nccl).
/// `several_processes`: as check_group() has it.
Result<void> check_group_sums(const proto::Experiment& experiment, bool several_processes);
/// ... in processes of one machine, or in one process, where GPUs that are called the same are the same.
Result<void> check_sums_of_one_machine(const Blueprint& blueprint);
/// ... where those of a stage's replicas in one process are not different ones. `process_of`: by ActorId.
Result<void> check_gpus_apart(const Blueprint& blueprint,
                              const Roster& who,
                              const std::vector<int>& process_of);

/// New names for Blueprint::groups, by chunk; none where no GPUs sum up. One process makes them.
std::vector<std::string> name_groups(const Blueprint& blueprint,
                                     const std::vector<int>& process_of);

/// What chunk `c` starts with, in buffers that all replicas write to (hogwild).
std::shared_ptr<SharedWeights> shared_weights(const Blueprint& blueprint,
                                              std::int32_t c,
                                              Stream& stream);

/// Of replicas that share servers: none of them waits for what the run's own servers make.
bool nobody_waits(const Blueprint& blueprint);

/// How many parts of its gradient the shard of chunk `owner` gets from other chunks.
std::size_t tied_shares(const Blueprint& blueprint, std::int32_t owner);

}  // namespace troupe
