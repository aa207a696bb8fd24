// Keeps the turns of sums that the GPUs of all replicas make together (group_reduction.hpp). Two groups that have a GPU in
// common wait for each other for ever, if one process puts this group's sum first on that GPU's queue and another process
// that one's. So there is one sum at a time among the chunks whose groups have a GPU in common; one shard of them keeps
// their turns:
//
//   every shard --ready--> it: when all replicas of a chunk are, and nobody's turn is, it --begin--> every shard of the chunk
//   every shard --done--> it: when all are, the next turn is
//
// Invariants: at most one turn is under way; it began when every replica had its gradient, so that nobody waits for
// another's computation within it.
#pragma once

#include "messages/archive.hpp"
#include "messages/peers.hpp"
#include "runtime/system/machine.hpp"

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace troupe {

class GroupTurns {
 public:
  struct Config {
    std::int32_t replica = 0;                                      // of the shard that keeps them
    std::map<std::int32_t, std::vector<Ref<ShardRole>>> shards{};  // by chunk and replica
  };

  explicit GroupTurns(Config config) : c_(std::move(config)) {}

  void heard(const GroupTurn& m, Effects& fx);

  /// The replica that is waited for, in words; empty where nothing is.
  std::string waits_for(std::int32_t chunk, std::int64_t batch) const;

  /// ArchiveError where it is to begin the turn of a chunk that it knows nothing of.
  void archive(Archive& a);

 private:
  struct Sum {
    std::int64_t batch = 0;
    std::int32_t chunk = 0;

    auto operator<=>(const Sum&) const = default;
  };

  void ready(const Sum& sum, std::int32_t replica, Effects& fx);
  void next(Effects& fx);

  Config c_;
  std::map<Sum, std::set<std::int32_t>> ready_;  // replicas
  std::map<std::int32_t, std::int64_t>
      complete_;                 // by chunk: the last mini-batch that all were ready for
  std::deque<Sum> due_;          // all replicas are ready
  std::optional<Sum> turn_;      // under way
  std::set<std::int32_t> done_;  // replicas, of the turn
};

}  // namespace troupe
