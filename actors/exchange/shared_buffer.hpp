// All replicas' optimizers write to one buffer (hogwild). A step's weights are a copy of it, their
// version is its count of updates, and an evaluation reads a fresh copy. Nobody else counts the run's
// updates, so the shards tell the director how far the buffer has come and when their own replica has
// finished:
//
//   shard --MarkDue, Finished--> director
//
// Invariants: one read for an evaluation is out at a time; Finished is said once.
#pragma once

#include "actors/exchange/exchange.hpp"
#include "actors/exchange/shared_weights.hpp"
#include "messages/results.hpp"
#include "runtime/schemes/evaluation.hpp"
#include "runtime/schemes/optimizers/chunk_optimizer.hpp"

#include <memory>
#include <optional>
#include <set>

namespace troupe {

class SharedBufferExchange final : public Exchange {
 public:
  struct Config {
    std::int32_t replica = 0;
    std::int32_t chunk = 0;
    std::shared_ptr<const SharedWeights> shared;
    ChunkOptimizer rule;
    EvaluationPlan evaluation;
    std::int64_t updates = 0;  // of the run, by all replicas; 0: not known
    Ref<DirectorRole> director;
  };

  explicit SharedBufferExchange(Config config)
      : Exchange({.pins_steps = false}), c_(std::move(config)) {}

  double planned_rate(std::int64_t step) const override;
  Label label(std::size_t slice) const override;

  void applied(Applied&& made, double now, Effects& fx) override;
  void make_pin(std::int64_t step, Effects& fx) override;
  void ended(std::int64_t batches, Effects& fx) override;
  void job_done(Computed m, double now, Effects& fx) override;
  void archive(Archive& a) override;

 private:
  void read_next(Effects& fx);
  void count(std::int64_t updates, Effects& fx);
  void finish(Effects& fx);

  Config c_;
  std::int64_t version_ = 0;             // the buffer's updates when the newest step was copied
  std::int64_t updates_ = 0;             // ... and after the last one of this replica
  std::set<std::int64_t> to_read_;       // steps that evaluations or the end ask for
  std::optional<std::int64_t> reading_;  // the one that is being read
  std::optional<std::int64_t> end_;      // the replica's mini-batches
  bool finished_ = false;                // the director knows
};

}  // namespace troupe
