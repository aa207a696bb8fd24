// Keeps the weights of one chunk by step, answers pulls, and sees to it that each push is applied
// once, in order. Light: all arithmetic is the Optimizer's.
//
//   stage --Pull--> shard --PullReply--> stage
//   stage --Push--> shard --Apply--> optimizer --Applied--> shard
//   stage of another chunk --TiedPush--> shard                    (parameters that chunks share)
//   shard --Norms--> shard of chunk 0 --Decide--> every shard     (clipping by the global norm)
//   director --Release--> shard --Concluded--> director
//
// Invariants: the step grows by exactly 1 with each Applied; a push is counted once, whatever
// arrives twice; at most one Apply is out; a pull is answered with exactly the step and the reach
// that it names; evaluation steps are pinned until released.
#pragma once

#include "runtime/model/chunk.hpp"
#include "runtime/schemes/step_rule.hpp"
#include "runtime/schemes/view.hpp"
#include "runtime/system/machine.hpp"

#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

class ParameterShard final : public Actor<ParameterShard, ShardRole> {
 public:
  struct Config {
    Ref<ShardRole> self;
    std::int32_t chunk = 0;
    Ref<OptimizerRole> optimizer;
    StepRule rule;
    ViewPlan plan;
    double clip_norm = 0;  // 0: none
    bool clip_globally =
        false;  // by the norm over all chunks, decided at chunk 0's shard; else by this shard's own
    std::vector<Ref<ShardRole>> shards;  // by chunk
    std::int64_t evaluate_every = 0;     // steps pinned in between; 0: none
    Ref<DirectorRole> director;
    std::vector<Tensor> initial;  // slices
    std::size_t tied = 0;         // TiedPushes that belong to each mini-batch
  };

  explicit ParameterShard(Config config);

  void handle(Pull m, double now, Effects& fx);
  void handle(Push m, double now, Effects& fx);
  void handle(TiedPush m, double now, Effects& fx);
  void handle(Applied m, double now, Effects& fx);
  void handle(Norms m, double now, Effects& fx);
  void handle(Decide m, double now, Effects& fx);
  void handle(End m, double now, Effects& fx);
  void handle(Release m, double now, Effects& fx);
  std::string waits_for() const override;

 private:
  struct Kept {
    Weights base;
    std::vector<Weights> predictions;
  };

  bool answer(const Pull& pull, Effects& fx);
  bool is_new(Ref<StageRole> from, std::uint64_t sequence);
  void serve(Effects& fx);
  void next(Effects& fx);
  std::vector<std::pair<std::size_t, Tensor>> take_tied(std::int64_t batch);
  void apply(double gradient_scale, Effects& fx);
  void pin(std::int64_t step);
  void conclude(Effects& fx);

  Config c_;
  std::int64_t step_ = 0;                 // newest; = version with one replica
  std::map<std::int64_t, Kept> kept_;     // by step: the newest plan.keep of them
  std::map<std::int64_t, Weights> pins_;  // by step
  std::deque<Pull> waiting_;
  std::deque<Push> queue_;
  std::map<std::int64_t, std::map<std::pair<std::size_t, std::int32_t>, Tensor>>
      tied_;  // by batch, by slice and sender's chunk
  std::optional<Push> applying_;
  std::map<ActorId, std::uint64_t> last_sequence_;
  std::optional<std::int64_t> end_;
  std::optional<std::int64_t> conclude_at_;
  std::map<std::int64_t, std::map<std::int32_t, std::vector<double>>>
      norms_;  // chunk 0 only: by batch, by chunk
};

}  // namespace troupe
