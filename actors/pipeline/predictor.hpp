// Estimates the error signals of one module of a network, and learns from those that the next module
// sends later: synthetic gradients (Jaderberg et al. 2017, arXiv:1608.05343).
//
//   stage --Activation{h}--> predictor --ErrorSignal{estimate}--> stage
//   stage of the next module --ErrorSignal{dL/dh}--> predictor       (freshest: a newer one takes the place of an older
//                                                                      one that it has not come to)
//   source --Labels--> predictor                                    (where it is conditioned on them)
//   predictor --Push--> its own shard, which has its own optimizer
//
// Or it estimates the module's inputs from the network's, so that the module waits for nobody at all:
//
//   source --Activation{x}--> predictor --Activation{estimate of h}--> stage
//   stage --Credit--> predictor                         (it has taken one: the next is asked for)
//   stage of the module before --Activation{h}--> predictor                (a lesson, later)
//   predictor --ErrorSignal{estimate}--> predictor of error signals of the module before, where that learns at it
//
// Or it is a head of the module's own (decoupled greedy learning, Belilovsky et al. 2020): it has the
// labels' loss, whose gradient by h is the error signal, and learns from the same pass.
//
// Of a text each position is a sample to it: one network for all positions, which sees the h of its position alone and,
// where it is conditioned, the label there.
//
// It works on gradients of a sample's own loss, those of the micro-batch's mean times the samples, so that
// no estimate depends on the batch size. With lambda > 0 an estimate waits for the next module and is
// mixed with what that sends.
//
// Inputs are estimated one at a time, when the module has taken the one before, so that each is made at
// weights that are at most a mini-batch old, however many mini-batches have been admitted.
//
// Invariants: estimates come before lessons, because the module waits for them; lessons are taken in
// the order of micro-batches, M of them make an update; an estimate is made at the newest weights.
#pragma once

#include "actors/pipeline/stage/least_used_buffer.hpp"
#include "actors/pipeline/stage/micro_batch.hpp"
#include "messages/archive.hpp"
#include "messages/pipeline.hpp"
#include "messages/returns.hpp"
#include "messages/weights.hpp"
#include "runtime/model/chunk.hpp"
#include "runtime/system/machine.hpp"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// The entry of an Activation that is a lesson to a predictor of inputs.
inline constexpr const char* kLesson = "lesson";

/// The entry of an ErrorSignal that is no gradient, but what the next one is a gradient by: the estimated input of the
/// module behind. It goes the gradient's way, before it.
inline constexpr const char* kEstimate = "estimate";

class Predictor final : public Actor<Predictor, PredictorRole> {
 public:
  struct Config {
    Ref<PredictorRole> self;
    std::int32_t replica = 0;
    std::int32_t chunk = 0;  // the module
    std::int32_t stage = 0;  // whose modelled time its jobs take
    std::uint64_t seed = 1;
    std::int32_t micro_batches = 1;  // M
    double lambda = 0;
    std::int64_t classes = 0;  // of the labels that it is told; 0: it is told none
    bool head = false;         // has the labels' loss, and learns while it answers
    bool freshest = false;     // a lesson that waits makes room for the next
    bool at_estimate = false;  // PredictorPlan::at_estimate
    /// Of the input that it estimates, of a sample; no dimensions: it estimates error signals.
    Shape input{};
    std::shared_ptr<const Chunk> model;  // -> (elements of h), or the network's outputs
    /// What the model reads, of a sample: (elements of h + classes), or of an image (H, W, C + classes). Of
    /// a head it is h. Of a text it is what is read at a position.
    Shape reads{};
    std::vector<Tensor> buffers{};  // of the model: every job begins with these
    Ref<StageRole> module;
    Ref<ShardRole> shard;
    /// Of inputs, where there is one: the predictor of error signals that learns at the estimates.
    std::optional<Ref<PredictorRole>> learner{};
  };

  explicit Predictor(Config config) : c_(std::move(config)) {}

  void handle(Start, double now, Effects& fx);
  void handle(Credit m, double now, Effects& fx);
  void handle(Activation m, double now, Effects& fx);
  void handle(Labels m, double now, Effects& fx);
  void handle(ErrorSignal m, double now, Effects& fx);
  void handle(PullReply m, double now, Effects& fx);
  void handle(Ran<ForwardPass> m, double now, Effects& fx);
  void handle(Ran<BackwardPass> m, double now, Effects& fx);

  void archive(Archive& a) override;

  std::string waits_for() const override;

  /// What is known of a micro-batch.
  struct Known {
    Tensor output{};    // h, (B, ...); of inputs: the network's
    Tensor labels{};    // int32 (B), of texts (B, T)
    Tensor signal{};    // dL/dh as the next module has sent it, (B, ...); of inputs: h
    Tensor estimate{};  // of h, (B, ...): what `signal` is the gradient by, where it is told
    bool answered = false;
    bool offered = false;  // freshest: the lesson of it went to the slot
  };

 private:
  struct Lesson {
    MicroBatch at{};
    Known of{};
  };

  void advance(Effects& fx);

  bool of_input() const { return c_.input.dimensions() > 0; }

  bool answerable(const Known& known) const;

  /// Whether all has come that a lesson is made of, but the module's output.
  bool teachable(const Known& known) const {
    return known.signal && (known.estimate || !c_.at_estimate);
  }

  void answer(Effects& fx);
  void teach(Known of, Effects& fx);
  void judge(Effects& fx);
  void send_error(Bundle error, Effects& fx);
  void offer(const MicroBatch& at);
  void count(std::vector<Tensor> gradient, double now, Effects& fx);
  void ask(Effects& fx);
  Run job(Work work) const;

  Config c_;
  std::map<MicroBatch, Known> known_;  // of micro-batches that are not behind it
  LeastUsedBuffer<Lesson> slot_;       // freshest: one lesson; else they wait in known_
  std::int64_t replaced_ = 0;          // lessons, since the last one that it took
  Weights weights_;                    // empty while the shard makes the next
  std::vector<Tensor> gradient_;       // of the mini-batch's lessons so far, by slice
  std::int32_t parts_ = 0;             // that are in it
  std::int64_t updates_ = 0;
  std::uint64_t pushes_ = 0;
  MicroBatch at_;           // of the job that runs
  std::int32_t asked_ = 1;  // inputs that the module has still to get
  bool running_ = false;
};

}  // namespace troupe
