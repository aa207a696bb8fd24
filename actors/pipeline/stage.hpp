// One worker on one device: runs its chunks by its schedule. The sequence of actions is fixed; what
// has arrived decides only whether the next one starts or waits.
//
//   previous stage --Activation--> stage --Activation--> next stage
//   previous stage <--ErrorSignal-- stage <--ErrorSignal-- next stage
//   stage --Pull{view}--> shard --PullReply--> stage --Push{gradient}--> shard
//   stage --Pull, TiedPush--> shard of the chunk that owns a tied parameter
//   decoupled modules: stage/decoupled_modules.hpp; inputs drawn from buffers: stage/drawn_inputs.hpp
//   stage --Note--> probe of the angle to backpropagation (stage/angle_notes.hpp)
//
// Invariants: actions run in sequence order, one at a time; a backward meets the stash of its own
// forward; micro-batches are accumulated in order and divided by M once; Marks run between two
// actions and change nothing of the sequence.
#pragma once

#include "actors/pipeline/stage/chunk_work.hpp"
#include "actors/pipeline/stage/evaluation_lane.hpp"
#include "actors/pipeline/stage/sequence_cursor.hpp"
#include "actors/pipeline/stage/sequence_wait.hpp"
#include "actors/pipeline/stage/shard_client.hpp"
#include "actors/pipeline/stage/stashes.hpp"
#include "actors/pipeline/stage/weights_in_hand.hpp"
#include "messages/returns.hpp"
#include "runtime/data/batch_sizes.hpp"
#include "runtime/model/chunk.hpp"
#include "runtime/schemes/decoupled/decoupled.hpp"
#include "runtime/schemes/evaluation.hpp"
#include "runtime/schemes/policies/view.hpp"
#include "runtime/schemes/schedules/schedule.hpp"
#include "runtime/system/machine.hpp"

#include <cstdint>
#include <string>

namespace troupe {

class Stage final : public Actor<Stage, StageRole> {
 public:
  using Config = StageConfig;

  explicit Stage(Config config);
  Stage(const Stage&) = delete;  // its parts refer to one another
  Stage& operator=(const Stage&) = delete;

  void handle(Start, double now, Effects& fx);
  void handle(Rejoin m, double now, Effects& fx);
  void handle(Activation&& m, double now, Effects& fx);
  void handle(Labels&& m, double now, Effects& fx);
  void handle(ErrorSignal&& m, double now, Effects& fx);
  void handle(End m, double now, Effects& fx);
  void handle(Halt m, double now, Effects& fx);
  void handle(PullReply&& m, double now, Effects& fx);
  void handle(MarkBatch&& m, double now, Effects& fx);
  void handle(Release m, double now, Effects& fx);
  void handle(Ran<ForwardPass>&& m, double now, Effects& fx);
  void handle(Ran<BackwardPass>&& m, double now, Effects& fx);
  void handle(Ran<InputGradient>&& m, double now, Effects& fx);
  void handle(Ran<WeightGradient>&& m, double now, Effects& fx);
  void archive(Archive& a) override;
  std::string waits_for() const override;

  Remains remains() const override { return {.weights = {}, .buffers = work_.statistics().all()}; }

 private:
  void advance(double now, Effects& fx);
  Action finished_action();
  template <class T>
  void finish(T&& made, double now, Effects& fx);
  void finish_evaluation_batch(ForwardPass&& made, double now, Effects& fx);
  void count_update(Effects& fx);
  void note_finished(Effects& fx);
  void pass_over(const Action& a, double now, Effects& fx);
  void evaluate(double now, Effects& fx);

  Config c_;
  SequenceCursor cursor_;
  ChunkWork work_;
  EvaluationLane evaluations_;
  SequenceWait wait_;
  std::int64_t updates_ = 0;  // over all chunks of this stage
  bool absent_ = false;       // until Rejoin
  bool running_ = false;
  bool finished_ = false;
};

}  // namespace troupe
