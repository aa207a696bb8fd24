// A stage makes forwards, backwards and updates on one device, for one chunk (consecutive layers of the network) or for
// several. Its schedule fixes the sequence of these actions; the messages that have arrived decide only whether the next
// action starts or waits. A shard keeps the weights of a chunk, and a view says which of them an action reads.
//
//   previous stage --Activation--> stage --Activation--> next stage
//   previous stage <--ErrorSignal-- stage <--ErrorSignal-- next stage
//   stage --Pull{view}--> shard --PullReply--> stage --Push{gradient}--> shard
//   stage --Pull, TiedPush--> shard of another chunk, for a parameter that several chunks share
//   source --MarkBatch--> stage --MarkBatch--> next stage, last stage --MarkResult--> source    (evaluations)
//
// Optional parts: decoupled modules (stage/decoupled_modules.hpp), inputs that are drawn from buffers
// (stage/drawn_inputs.hpp), the angle between a gradient and that of backpropagation (stage/angle_notes.hpp).
//
// Invariants: actions run in the order of the sequence, one at a time. A backward uses what its own forward has kept
// (stage/stashes.hpp). The gradients of micro-batches are added up in order, and the sum is divided by their number once.
// Batches of an evaluation run between two actions and change nothing of the sequence.
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
#include <optional>
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
  void start_actions(double now, Effects& fx);
  Action take_finished_action();
  template <class T>
  void finish_action(T&& made, double now, Effects& fx);
  void finish_evaluation_batch(ForwardPass&& made, double now, Effects& fx);
  void count_update(Effects& fx);
  void count_updates_due();
  void finish_after_last_update(Effects& fx);
  void skip(const Action& a, double now, Effects& fx);
  void evaluate(double now, Effects& fx);

  Config c_;
  SequenceCursor cursor_;
  ChunkWork work_;
  EvaluationLane evaluations_;
  SequenceWait wait_;
  std::int64_t updates_ = 0;                   // made or skipped, of all chunks of this stage
  std::optional<std::int64_t> updates_due_{};  // of the whole run, once its end is known
  bool absent_ = false;                        // its replica was lost, and Rejoin has not come yet
  bool running_ = false;                       // the job of an action is under way
  bool finished_ = false;                      // the last update of the run has been made
};

}  // namespace troupe
