// The gradient of a mini-batch is summed over all replicas before the step, by their GPUs at the same time
// (synchronous.reduction nccl):
//
//   shard: hands in its gradient, where the shards of other replicas in its process do (group_sums.hpp)
//   every shard --GroupTurn: ready--> the shard that keeps the turns (group_turns.hpp)
//   it, when all are --GroupTurn: begin--> every shard, whose job then fetches its copy of the mean
//   every shard --GroupTurn: done--> it
//
// Only these words travel: each gradient and each copy of the mean stays on its replica's device. In one process the job
// that is first has the means of all replicas made; no job waits for another actor's, which could wait for ever, because
// actors share threads. In several processes it waits for those of the other processes, each of which has been told to
// begin, and is on the thread of a stage that has nothing else to wait for. Where a replica dies, the run ends and
// GroupSums::end() is called.
//
// Invariants: one sum is under way at a time; a word that comes twice changes nothing.
#pragma once

#include "actors/exchange/alone.hpp"
#include "actors/exchange/group_sums.hpp"
#include "actors/exchange/group_turns.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

class GroupReduction final : public Alone {
 public:
  struct Config {
    std::int32_t replica = 0;
    std::int32_t replicas = 0;             // two or more
    std::shared_ptr<GroupSums> sums;       // of this process
    Ref<ShardRole> keeper;                 // of the turns
    std::optional<GroupTurns> turns = {};  // its own, where it is that
  };

  GroupReduction(ChunkOptimizer rule, Config config);

  /// A lead that goes on from a checkpoint has the machines of other processes, too, before it throws them away.
  ~GroupReduction() override { c_.sums->leave(c_.replica); }

  GroupReduction(const GroupReduction&) = delete;
  GroupReduction& operator=(const GroupReduction&) = delete;

  bool sums() const override { return true; }

  void sum(std::vector<Tensor> gradient, TiedGradients tied, Effects& fx) override;
  void came(GroupTurn m, Effects& fx) override;
  void job_done(Computed m, double now, Effects& fx) override;
  void archive(Archive& a) override;
  std::string waits_for() const override;

 private:
  enum class Waits : std::uint8_t {
    not_at_all,
    for_tied,  // ... the job that adds shares of tied parameters
    for_turn,
    for_job,  // ... that fetches the mean
  };

  /// One replica's record stands for all of them.
  std::int64_t mini_batches() const override { return c_.replica == 0 ? c_.replicas : 0; }

  void hand_in(std::vector<Tensor> gradient, Effects& fx);
  void count_bytes(const std::vector<Tensor>& gradient, Effects& fx) const;
  void begin(const GroupTurn& m, Effects& fx);
  void say(GroupTurn::Kind what, Effects& fx) const;

  Config c_;
  Stamp stamp_;  // of the sum under way, or of the last one
  Waits waits_ = Waits::not_at_all;
  std::vector<Tensor> gradient_;  // by slice, until its turn
};

}  // namespace troupe
