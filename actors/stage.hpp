// One worker on one device: runs its chunks by its schedule. The sequence of actions is fixed; what
// has arrived decides only whether the next one starts or waits.
//
//   previous stage --Activation--> stage --Activation--> next stage
//   previous stage <--ErrorSignal-- stage <--ErrorSignal-- next stage
//   stage --Pull{view}--> shard --PullReply--> stage --Push{gradient}--> shard
//   stage --Pull, TiedPush--> shard of the chunk that owns a tied parameter
//   head --ErrorSignal--> every stage (decoupled modules that the head sends its error to)
//   stage --ErrorSignal{influence}--> stage of the chunk before (kickback)
//   stage --Activation--> predictor of its chunk --ErrorSignal--> stage (synthetic gradients)
//   stage --ErrorSignal--> predictor of the chunk before, in place of its stage
//   stage <--Activation-- predictor of its input, in place of the stage before (unlocked)
//   stage --Activation{h, labels}--> next stage, which draws its inputs from a buffer (decoupled.greedy.buffer)
//   stage --Note--> probe of the angle to backpropagation (record.angle_every)
//   stage --Activation{}--> next stage: what it has not got of this mini-batch and those before has died with a module
//   stage of a module that has come back --ErrorSignal{}--> stage before: what comes next? --Activation{}--> it
//
// Invariants: actions run in sequence order, one at a time; a backward meets the stash of its own
// forward; micro-batches are accumulated in order and divided by M once; Marks run between two
// actions and change nothing of the sequence.
#pragma once

#include "actors/stage/arrivals.hpp"
#include "actors/stage/chunk_statistics.hpp"
#include "actors/stage/evaluation_lane.hpp"
#include "actors/stage/gradient_sums.hpp"
#include "actors/stage/sequence_cursor.hpp"
#include "actors/stage/sequence_wait.hpp"
#include "actors/stage/shard_client.hpp"
#include "actors/stage/stashes.hpp"
#include "actors/stage/weights_in_hand.hpp"
#include "messages/ending.hpp"
#include "messages/evaluation.hpp"
#include "messages/pipeline.hpp"
#include "messages/results.hpp"
#include "messages/returns.hpp"
#include "messages/weights.hpp"
#include "runtime/data/batch_sizes.hpp"
#include "runtime/model/chunk.hpp"
#include "runtime/schemes/decoupled.hpp"
#include "runtime/schemes/evaluation.hpp"
#include "runtime/schemes/schedule.hpp"
#include "runtime/schemes/view.hpp"
#include "runtime/system/machine.hpp"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

class Stage final : public Actor<Stage, StageRole> {
 public:
  struct Config {
    Ref<StageRole> self;
    std::int32_t replica = 0;
    std::int32_t replicas = 1;
    std::int64_t passed = 0;  // as the Source's
    bool served = false;      // replicas share weights: others know which step is the last
    std::int32_t stage = 0;
    std::uint64_t seed = 1;
    BatchSizes sizes;
    std::shared_ptr<const Schedule> schedule;
    std::shared_ptr<const ViewPolicy> view;
    KeepActivations keep = KeepActivations::fifo;
    std::int64_t gap_every = 0;  // mini-batches between two measurements of the gap; 0: never
    std::vector<std::shared_ptr<const Chunk>> chunks;     // all of the network's, by chunk
    std::vector<Ref<StageRole>> stage_of;                 // by chunk
    std::vector<Ref<ShardRole>> shard_of;                 // by chunk
    EvaluationPlan evaluation;                            // steps whose buffers a Mark will read
    std::map<std::int32_t, std::vector<Tensor>> buffers;  // how they start, of this stage's chunks
    bool returns = false;           // its replica comes back: it begins with Rejoin
    std::int32_t credit_chunk = 0;  // whose forwards let the Source admit more
    /// Mini-batches that each chunk but the first keeps of those that come, to draw its inputs from; labels travel with
    /// them. 0: each once, in order.
    std::int64_t buffer = 0;
    /// Of decoupled modules, by chunk of this stage; empty: backpropagation.
    std::map<std::int32_t, std::shared_ptr<const ModuleSignal>> signals{};
    bool influence = false;  // chunks tell the one before their influence (DecoupledScheme)
    /// By chunk but the first; or empty. Where there are some every chunk gives credit.
    std::vector<Ref<PredictorRole>> input_predictors{};
    std::vector<Ref<PredictorRole>>
        predictors{};               // of error signals, by chunk but the last; or empty
    double update_probability = 1;  // of a mini-batch, at chunks but the last
    bool tells_signals = false;     // SignalRecords are wanted
    std::int64_t angle_every = 0;   // mini-batches between two measurements; 0: never, and no probe
    Ref<ExtensionRole> probe{};
    Ref<SourceRole> source;
    Ref<DirectorRole> director;
  };

  explicit Stage(Config config);
  Stage(const Stage&) = delete;  // its parts refer to one another
  Stage& operator=(const Stage&) = delete;

  void handle(Start, double now, Effects& fx);
  void handle(Rejoin m, double now, Effects& fx);
  void handle(Credit m, double now, Effects& fx);
  void handle(Activation m, double now, Effects& fx);
  void handle(Labels m, double now, Effects& fx);
  void handle(ErrorSignal m, double now, Effects& fx);
  void handle(End m, double now, Effects& fx);
  void handle(Halt m, double now, Effects& fx);
  void handle(PullReply m, double now, Effects& fx);
  void handle(MarkBatch m, double now, Effects& fx);
  void handle(Release m, double now, Effects& fx);
  void handle(Ran<ForwardPass> m, double now, Effects& fx);
  void handle(Ran<BackwardPass> m, double now, Effects& fx);
  void handle(Ran<InputGradient> m, double now, Effects& fx);
  void handle(Ran<WeightGradient> m, double now, Effects& fx);
  void archive(Archive& a) override;
  std::string waits_for() const override;

  Remains remains() const override { return {.weights = {}, .buffers = statistics_.all()}; }

 private:
  void advance(double now, Effects& fx);
  bool start(const Action& a, double now, Effects& fx);  // false: something is missing
  bool start_forward(const Action& a, double now, Effects& fx);
  bool gather_weights(const Action& a, const View& view, Effects& fx);
  bool start_backward(const Action& a, Effects& fx);
  void run_weight_gradient(const Action& a, Effects& fx);
  void push(const Action& a, Effects& fx);
  Action finished_action();
  void finish_forward(const Action& a, ForwardPass out, Effects& fx);
  void keep_for_backward(const Action& a, Arrivals::ForwardInput in, ForwardPass& out, Effects& fx);
  void draw_input(const Action& forward, Effects& fx);
  void send_output(const Action& a, Bundle y, const Tensor& labels, Effects& fx);
  void tell_of_forward(const Action& a, const ForwardPass& out, Effects& fx);
  void give_credit(const Action& a, Effects& fx);
  void tell_probe(const Action& a,
                  const Arrivals::ForwardInput& in,
                  const Weights& read,
                  Effects& fx) const;
  void tell_probe(const Action& update, const std::vector<Tensor>& gradient, Effects& fx) const;
  void finish_input_gradient(const Action& a, Bundle dx, Effects& fx);
  void finish_evaluation_batch(ForwardPass made, double now, Effects& fx);
  void note_finished(Effects& fx);
  void pass_over(const Action& a, double now, Effects& fx);
  void evaluate(double now, Effects& fx);

  Want want(const Action& a) const;
  void ask_ahead(const Action& a, Effects& fx);
  View borrowed_view(const Action& a, std::size_t borrowed) const;
  std::int64_t first_sample(const Action& a, std::int64_t rows) const;
  std::int32_t divide_by(const Action& a) const;

  bool last_micro_batch(const Action& a) const {
    return a.micro_batch + 1 == c_.schedule->options.micro_batches;
  }

  bool is_head(std::int32_t chunk) const {
    return chunk + 1 == static_cast<std::int32_t>(c_.chunks.size());
  }

  /// Whether the chunk's own ModuleSignal makes its error signal.
  bool makes_error(std::int32_t chunk) const {
    const SignalFrom from = c_.schedule->signal_from;
    return (from == SignalFrom::head || from == SignalFrom::nobody) && !is_head(chunk);
  }

  /// Whether the update of mini-batch `batch` is made.
  bool updates(std::int32_t chunk, std::int64_t batch) const;

  /// The run was halted before the chunk had begun this mini-batch.
  bool beyond_halt(const Action& a) const {
    const auto begun = begun_.find(a.chunk);
    return halted_ && a.batch >= (begun == begun_.end() ? 0 : begun->second);
  }

  bool measures_angle(std::int64_t batch) const {
    return c_.angle_every > 0 && (batch + 1) % c_.angle_every == 0;
  }

  Arrivals::Needs needs(std::int32_t chunk) const {
    const bool alone = c_.schedule->signal_from == SignalFrom::nobody;
    const std::size_t errors = is_head(chunk) || alone ? 0 : c_.influence ? 2 : 1;
    return {.labels = is_head(chunk) || alone || c_.buffer > 0, .errors = errors};
  }

  std::shared_ptr<const ModuleSignal> signal(std::int32_t chunk) const {
    const auto found = c_.signals.find(chunk);
    return found == c_.signals.end() ? nullptr : found->second;
  }

  const std::shared_ptr<const Chunk>& chunk(std::int32_t index) const {
    return c_.chunks[static_cast<std::size_t>(index)];
  }

  Ref<StageRole> stage_of(std::int32_t chunk) const {
    return c_.stage_of[static_cast<std::size_t>(chunk)];
  }

  Stamp stamp(const Action& a, std::int32_t chunk) const {
    return {c_.replica, chunk, a.batch, a.micro_batch};
  }

  /// In the replica's count, for records and modelled times.
  Stamp in_run(const Action& a) const {
    return {c_.replica, a.chunk, first_ + a.batch, a.micro_batch};
  }

  Run job(const Action& a, Work work) const {
    return {.work = work, .stage = c_.stage, .stamp = in_run(a)};
  }

  Config c_;
  SequenceCursor cursor_;
  ShardClient shards_;
  WeightsInHand in_hand_;
  Arrivals arrivals_;
  Stashes stashes_;
  GradientSums sums_;
  ChunkStatistics statistics_;
  EvaluationLane evaluations_;
  SequenceWait wait_;
  Weights forward_weights_;   // of the forward that runs
  std::int64_t updates_ = 0;  // over all chunks of this stage
  std::int64_t first_ = 0;    // mini-batch of the replica that its mini-batch 0 is: as the Source's
  std::map<std::int32_t, std::int64_t> begun_;  // mini-batches, by chunk, where inputs are drawn
  bool halted_ = false;
  bool passing_over_ = false;  // what it had not begun when it was halted
  bool absent_ = false;        // until Rejoin
  bool running_ = false;
  bool finished_ = false;
};

}  // namespace troupe
