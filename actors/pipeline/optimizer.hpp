// Makes the steps of one chunk's parameters, and what travels of them, one job at a time. Arithmetic without state
// is its shard's own (shard_jobs.hpp).
//
//   shard --Apply--> optimizer --Applied--> shard
//
// Under hogwild what its step moves is added to a buffer that all replicas share, and the next
// weights are a copy of that.
//
// Invariants: one job is out at a time (a second request is a bug of the shard); the optimizer's state is the
// job's while a step is made.
#pragma once

#include "actors/exchange/shared_weights.hpp"
#include "messages/optimizer.hpp"
#include "runtime/model/chunk.hpp"
#include "runtime/schemes/codecs/codec.hpp"
#include "runtime/schemes/optimizers/optimizer_step.hpp"
#include "runtime/schemes/optimizers/slim.hpp"
#include "runtime/system/machine.hpp"

#include <memory>
#include <optional>

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
    bool rebases = false;                     // Link::rebases
    std::vector<CodedLink> up{};              // by slice: where what travels is encoded; else empty
    std::shared_ptr<SharedWeights> shared{};  // hogwild
  };

  explicit Optimizer(Config config);

  void handle(Apply&& m, double now, Effects& fx);
  void handle(Ran<StepMade>&& m, double now, Effects& fx);

  void archive(Archive& a) override;

  /// Its arithmetic, while no step is made; else null.
  OptimizerStep* arithmetic() const { return step_.get(); }

  std::string waits_for() const override { return works_for_ ? "its own kernel" : ""; }

 private:
  Config c_;
  SliceLayout slices_;
  std::int64_t parameters_;
  std::shared_ptr<OptimizerStep> step_;      // empty while a step is made
  std::optional<Ref<ShardRole>> works_for_;  // while a job is out
};

}  // namespace troupe
