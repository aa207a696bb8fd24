#include "apps/topologies/partners.hpp"

#include "experiment.pb.h"
#include "runtime/schemes/exchanges/all_reduce.hpp"

#include <cstddef>
#include <map>
#include <set>
#include <utility>

namespace troupe {
namespace {

class Partners {
 public:
  explicit Partners(int processes)
      : all_(static_cast<std::size_t>(processes),
             std::vector<bool>(static_cast<std::size_t>(processes), false)) {}

  void meet(int one, int other) {
    if (one != other) {
      all_[static_cast<std::size_t>(one)][static_cast<std::size_t>(other)] = true;
      all_[static_cast<std::size_t>(other)][static_cast<std::size_t>(one)] = true;
    }
  }

  void meet_each_other(const std::set<int>& some) {
    for (auto one = some.begin(); one != some.end(); ++one) {
      for (auto other = some.begin(); other != one; ++other) {
        meet(*one, *other);
      }
    }
  }

  void meet_everybody(int one) {
    for (std::size_t other = 0; other < all_.size(); ++other) {
      meet(one, static_cast<int>(other));
    }
  }

  std::vector<std::vector<bool>> take() { return std::move(all_); }

 private:
  std::vector<std::vector<bool>> all_;
};

/// The shards of a chunk in all replicas, which have no servers between them.
void meet_in_exchange(const proto::Experiment& e,
                      const std::vector<Ref<ShardRole>>& shards,
                      const std::vector<int>& process_of,
                      Partners& all) {
  const auto how = reduction_of(e);
  if (!how) {  // whom a replica tells its weights may change from round to round, and with who is left
    std::set<int> some;
    for (const auto& shard : shards) {
      some.insert(process_of[shard.id]);
    }
    return all.meet_each_other(some);
  }
  const auto replicas = static_cast<std::int32_t>(shards.size());
  for (std::int32_t r = 0; r < replicas; ++r) {
    for (const Move& move : plan_all_reduce(*how, r, replicas).moves) {
      all.meet(process_of[shards[static_cast<std::size_t>(r)].id],
               process_of[shards[static_cast<std::size_t>(move.peer)].id]);
    }
  }
}

}  // namespace

std::vector<std::vector<bool>> partners(const Blueprint& b,
                                        const Roster& who,
                                        const std::vector<int>& process_of,
                                        int processes) {
  Partners all(processes);
  all.meet_everybody(0);
  std::map<std::int32_t, std::set<int>> of_replica;
  std::set<int> everybodys;  // who plays servers or copies
  for (std::size_t id = 0; id < who.entries().size(); ++id) {
    const std::int32_t replica = who.entries()[id].replica;
    (replica < 0 ? everybodys : of_replica[replica]).insert(process_of[id]);
  }
  for (const Roster::Household& household : who.households()) {
    for (const std::vector<ActorId>& seats : household.seats) {
      if (household.seats.size() > 1) {
        everybodys.insert(process_of[seats.front()]);
      }
    }
  }
  for (const int process : everybodys) {
    all.meet_everybody(process);
  }
  for (const auto& [replica, some] : of_replica) {
    all.meet_each_other(some);
  }
  for (std::int32_t c = 0; !b.link && c < b.schedule->chunks; ++c) {
    const std::vector<Ref<ShardRole>> shards = who.peers(c);
    meet_in_exchange(b.experiment, shards, process_of, all);
    if (sums_in_group(
            b.experiment)) {  // who gives the turns of sums hears the shards of other chunks
      all.meet_everybody(process_of[shards.front().id]);
    }
  }
  return all.take();
}

}  // namespace troupe
