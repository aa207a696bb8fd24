// The gradient of a mini-batch is summed over all replicas before the step, in one job for all of them
// (synchronous.reduction nccl):
//
//   every other shard --GradientPart: its gradient--> the shard of replica 0
//   the shard of replica 0: when all are there, one job makes each replica's copy of the mean
//   the shard of replica 0 --GradientPart: its copy of the mean--> every other shard
//
// Only handles travel: each gradient and each copy of the mean stays on its replica's device. A job that waits for one
// of another actor's could wait for ever, because actors share threads. Here nobody does: a shard waits for messages, and
// the one job has all that it needs.
//
// Invariants: one sum is under way at a time; what came for a later one waits until its turn.
#pragma once

#include "actors/exchange/alone.hpp"
#include "actors/exchange/fan_in.hpp"
#include "messages/optimizer.hpp"
#include "messages/peers.hpp"

#include <functional>
#include <string>
#include <vector>

namespace troupe {

/// Gradients by replica and slice -> the mean over the replicas, in a copy for each of them, by replica and slice. As
/// kernels/group_mean.hpp.
using GroupMean =
    std::function<std::vector<std::vector<Tensor>>(Stream&, std::vector<std::vector<Tensor>>)>;

class GroupReduction final : public Alone {
 public:
  struct Config {
    std::int32_t replica = 0;
    std::vector<Ref<ShardRole>> peers;  // by replica, itself among them: two or more
    GroupMean mean;                     // replica 0 calls it
  };

  GroupReduction(ChunkOptimizer rule, Config config);

  bool sums() const override { return true; }

  void sum(std::vector<Tensor> gradient, TiedGradients tied, Effects& fx) override;
  void came(GradientPart m, double now, Effects& fx) override;
  void job_done(Computed m, double now, Effects& fx) override;
  void archive(Archive& a) override;
  std::string waits_for() const override;

 private:
  enum class Waits : std::uint8_t {
    not_at_all,
    for_tied,   // ... the job that adds shares of tied parameters
    for_parts,  // replica 0: ... the others' gradients
    for_job,    // ... the job
    for_mean,   // others: ... replica 0
  };

  /// One replica's record stands for all of them.
  std::int64_t mini_batches() const override {
    return c_.replica == 0 ? static_cast<std::int64_t>(c_.peers.size()) : 0;
  }

  void hand_in(std::vector<Tensor> gradient, Effects& fx);
  void sum_when_complete(Effects& fx);
  void count_bytes(const std::vector<Tensor>& gradient, Effects& fx) const;
  void came_mean(GradientPart m, double now, Effects& fx);
  void take(std::vector<Tensor> mean, double now, Effects& fx);

  Config c_;
  Stamp stamp_;  // of the sum under way, or of the last one
  Waits waits_ = Waits::not_at_all;
  FanIn<std::int32_t, std::vector<Tensor>> gradients_;  // replica 0: of all replicas
};

}  // namespace troupe
