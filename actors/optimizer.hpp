// Does all arithmetic over the parameters of one chunk, one job at a time: Apply in, Applied out.
//
//   shard --Apply--> optimizer --Applied--> shard
//
// Under hogwild what its step moves is added to a buffer that all replicas share, and the next
// weights are a copy of that.
//
// Invariants: one job is out at a time (a second Apply is a bug of the shard), and one that reads the
// shared buffer for an evaluation, which delays nothing; the moments are the job's while it is out.
#pragma once

#include "actors/shared_weights.hpp"
#include "runtime/model/chunk.hpp"
#include "runtime/schemes/optimizer_step.hpp"
#include "runtime/schemes/slim.hpp"
#include "runtime/system/machine.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace troupe {

SliceLayout slice_layout(const ParameterLayout& layout);

/// Bytes of the moments and the displacement that an Optimizer keeps.
std::int64_t state_bytes(const ChunkOptimizer& rule, const ParameterLayout& layout);

class Optimizer final : public Actor<Optimizer, OptimizerRole> {
 public:
  struct Config {
    std::int32_t replica = 0;
    std::int32_t stage = 0;  // whose modelled time an update takes
    ChunkOptimizer rule;
    ParameterLayout layout;
    SlimNumbers slim{};                       // for Travel::slim
    std::shared_ptr<SharedWeights> shared{};  // hogwild
  };

  explicit Optimizer(Config config);

  void handle(Apply m, double now, Effects& fx);
  void handle(Ran m, double now, Effects& fx);

  std::string waits_for() const override { return at_work_ ? "its own kernel" : ""; }

 private:
  struct AtWork {
    Ref<ShardRole> from;
    Decision::Kind kind;
  };

  /// What is kept for the servers between mini-batches.
  struct Unsent {
    std::vector<Tensor> gradient;  // by slice: sum of those that have not travelled yet
    std::vector<SlimState> slim;   // by slice
  };

  Config c_;
  SliceLayout slices_;
  std::shared_ptr<OptimizerStep> step_;  // untouched here while a job is out
  std::shared_ptr<Unsent> unsent_;       // the same
  std::optional<AtWork> at_work_;
  std::optional<Ref<ShardRole>> reading_for_;  // who asked for the shared buffer's contents
};

}  // namespace troupe
