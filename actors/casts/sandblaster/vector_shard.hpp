// Keeps one slice's part of every vector of Sandblaster's L-BFGS, does to it what the coordinator
// commands, and adds up the portions of a batch's gradient.
//
//   coordinator --VectorCommands--> vector shard --VectorReply--> coordinator
//   portion worker --PointPull--> vector shard --PointReply--> portion worker
//   portion worker --PartialGradient--> vector shard --GradientReady--> coordinator
//   coordinator --Release--> vector shard --PointReply--> coordinator       (the final weights)
//
// Invariants: `sum` is made of portions 0, 1, 2, ... of the point's version in that order, each
// counted once, whatever arrives twice, too late or in another order; so its bits do not depend on
// who worked. A point that was handed out never changes. One job at a time.
#pragma once

#include "messages/evaluation.hpp"
#include "messages/results.hpp"
#include "messages/sandblaster.hpp"
#include "runtime/system/machine.hpp"

#include <deque>
#include <map>
#include <vector>

namespace troupe {

class VectorShard final : public Actor<VectorShard, VectorShardRole> {
 public:
  struct Config {
    std::int32_t shard = 0;
    std::int32_t portions = 1;  // of a batch
    Tensor initial;             // (n): the weights, and the point of version 0
    Ref<CoordinatorRole> coordinator;
  };

  explicit VectorShard(Config config);

  void handle(PointPull m, double now, Effects& fx);
  void handle(PartialGradient m, double now, Effects& fx);
  void handle(VectorCommands m, double now, Effects& fx);
  void handle(Release m, double now, Effects& fx);
  void handle(Ran<PortionsAdded> m, double now, Effects& fx);
  void handle(Ran<VectorsDone> m, double now, Effects& fx);
  void archive(Archive& a) override;
  std::string waits_for() const override;
  Remains remains() const override;

 private:
  void work(Effects& fx);
  void add_portions(Effects& fx);
  void carry_out(Effects& fx);

  Config c_;
  std::map<VectorName, Tensor> vectors_;
  std::int64_t version_ = 0;                       // of the point
  std::int32_t added_ = 0;                         // portions in the sum
  std::map<std::int32_t, PartialGradient> early_;  // by portion: not in the sum yet
  std::deque<VectorCommands> commands_;
  bool adding_ = false;                // a job that adds portions runs
  bool commanded_ = false;             // a job of commands_.front() runs
  std::vector<VectorName> at_work_{};  // vectors of the job that runs, in its order
};

}  // namespace troupe
