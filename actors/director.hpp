// Watches over a run and ends it: when the weights of the last step have come back, when an
// evaluation has met the target, or when something went wrong.
//
//   source --End, MarkDone--> director     anyone --Down, Diverged--> director
//   director --Release--> shards, stages --Concluded, Buffers--> director
//   director --Halt--> source
//
// Invariants: the run ends exactly once; final weights are those of one step on every chunk.
#pragma once

#include "runtime/system/machine.hpp"

#include <map>
#include <optional>
#include <vector>

namespace troupe {

class Director final : public Actor<Director, DirectorRole> {
 public:
  struct Config {
    Ref<SourceRole> source;
    std::vector<Ref<ShardRole>> shards;  // by chunk
    std::vector<Ref<StageRole>> stages;
    bool evaluate = true;        // a Mark at the last step will come
    double target_accuracy = 0;  // 0: none
    bool allow_divergence = false;
  };

  explicit Director(Config config) : c_(std::move(config)) {}

  void handle(End m, double now, Effects& fx);
  void handle(MarkDone m, double now, Effects& fx);
  void handle(Concluded m, double now, Effects& fx);
  void handle(Buffers m, double now, Effects& fx);
  void handle(Down m, double now, Effects& fx);
  void handle(Diverged m, double now, Effects& fx);
  std::string waits_for() const override;

 private:
  void conclude(Effects& fx);
  void release(std::int64_t step, bool conclude, Effects& fx);
  void finish(Ending ending, Effects& fx);

  Config c_;
  std::optional<std::int64_t> concluding_;               // step of the final weights
  std::map<std::int32_t, Weights> concluded_;            // by chunk
  std::map<std::int32_t, std::vector<Tensor>> buffers_;  // by chunk
  bool finished_ = false;
};

}  // namespace troupe
