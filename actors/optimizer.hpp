// Does all arithmetic over the parameters of one chunk, one job at a time.
//
//   shard --Apply--> optimizer --Applied--> shard                         (a step, and what travels)
//   shard --MeasureNorms--> optimizer --NormsMeasured--> shard                      (norms, for clipping)
//   shard --AddGradients, JoinSegments--> optimizer --Summed--> shard     (sums over replicas)
//   shard --Follow--> optimizer --Followed--> shard                       (predictions move along)
//   shard --ReadShared--> optimizer --SharedRead--> shard                 (hogwild: an evaluation)
//
// Under hogwild what its step moves is added to a buffer that all replicas share, and the next
// weights are a copy of that.
//
// Invariants: one job is out at a time (a second request is a bug of the shard), and one that reads
// the shared buffer for an evaluation, which delays nothing; the optimizer's state is the job's while
// a step is made.
#pragma once

#include "actors/exchange/shared_weights.hpp"
#include "messages/optimizer.hpp"
#include "runtime/model/chunk.hpp"
#include "runtime/schemes/codec.hpp"
#include "runtime/schemes/optimizer_step.hpp"
#include "runtime/schemes/slim.hpp"
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

  void handle(Apply m, double now, Effects& fx);
  void handle(MeasureNorms m, double now, Effects& fx);
  void handle(AddGradients m, double now, Effects& fx);
  void handle(JoinSegments m, double now, Effects& fx);
  void handle(Follow m, double now, Effects& fx);
  void handle(ReadShared m, double now, Effects& fx);
  void handle(Ran<StepMade> m, double now, Effects& fx);
  void handle(Ran<NormsMeasured> m, double now, Effects& fx);
  void handle(Ran<Summed> m, double now, Effects& fx);
  void handle(Ran<Followed> m, double now, Effects& fx);
  void handle(Ran<SharedRead> m, double now, Effects& fx);

  void archive(Archive& a) override;

  /// Its arithmetic, while no step is made; else null.
  OptimizerStep* arithmetic() const { return step_.get(); }

  std::string waits_for() const override { return asked_by_ ? "its own kernel" : ""; }

 private:
  void begin(Ref<ShardRole> from);
  Ref<ShardRole> end();
  Run job(const Stamp& stamp, Work work) const;

  Config c_;
  SliceLayout slices_;
  std::shared_ptr<OptimizerStep> step_;        // empty while a step is made
  std::optional<Ref<ShardRole>> asked_by_;     // while a job is out
  std::optional<Ref<ShardRole>> reading_for_;  // who asked for the shared buffer's contents
};

}  // namespace troupe
