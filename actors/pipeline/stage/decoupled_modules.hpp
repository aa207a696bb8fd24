// What a stage does otherwise where its chunks are decoupled modules (runtime/schemes/decoupled): whose error signals
// they wait for, who makes these, and whom they tell what.
//
//   head --ErrorSignal--> every stage (modules that the head sends its error to)
//   stage --ErrorSignal{influence}--> stage of the chunk before (kickback)
//   stage --Activation--> predictor of its chunk --ErrorSignal--> stage (synthetic gradients)
//   stage --ErrorSignal--> predictor of the chunk before, in place of its stage
//   stage <--Activation-- predictor of its input, in place of the stage before (unlocked)
#pragma once

#include "actors/pipeline/stage/arrivals.hpp"
#include "messages/pipeline.hpp"
#include "messages/results.hpp"
#include "runtime/schemes/decoupled/decoupled.hpp"
#include "runtime/schemes/schedules/schedule.hpp"
#include "runtime/system/machine.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace troupe {

class DecoupledModules {
 public:
  struct Config {
    SignalFrom from = SignalFrom::next;
    std::int32_t replica = 0;
    std::uint64_t seed = 1;
    std::vector<Ref<StageRole>> stage_of;  // by chunk
    /// Mini-batches that each chunk but the first keeps of those that come, to draw its inputs from; labels travel with
    /// them. 0: each once, in order.
    std::int64_t buffer = 0;
    /// By chunk of this stage; empty where others make error signals.
    std::map<std::int32_t, std::shared_ptr<const ModuleSignal>> signals{};
    bool influence = false;  // chunks tell the one before their influence (DecoupledScheme)
    /// By chunk but the first; or empty. Where there are some every chunk gives credit.
    std::vector<Ref<PredictorRole>> input_predictors{};
    std::vector<Ref<PredictorRole>>
        predictors{};               // of error signals, by chunk but the last; or empty
    double update_probability = 1;  // of a mini-batch, at chunks but the last
    bool records_signals = false;   // SignalRecords are wanted
  };

  explicit DecoupledModules(Config config) : c_(std::move(config)) {}

  /// What is to arrive for a chunk beside its inputs.
  Arrivals::Needs needs(std::int32_t chunk) const;

  /// Whether the chunk's own ModuleSignal makes its error signal.
  bool makes_error(std::int32_t chunk) const;

  /// Null where others make its error signal.
  std::shared_ptr<const ModuleSignal> signal(std::int32_t chunk) const;

  bool has_influence(std::int32_t chunk) const { return c_.influence && chunk > 0; }

  bool every_chunk_gives_credit() const { return !c_.input_predictors.empty(); }

  /// Whether the update of mini-batch `batch` is made.
  bool updates(std::int32_t chunk, std::int64_t batch) const;

  /// Records whether an update that is made or not went by a predictor. `stamp`: its own in the run's records.
  void record_update(const Stamp& stamp, bool made, Effects& fx) const;

  /// A chunk's output goes to the next chunk, or to its predictor of inputs, and to the chunk's own predictor.
  void send_output(const Action& forward, Bundle y, const Tensor& labels, Effects& fx) const;

  /// What others are told of a forward beside its output.
  void tell_of_forward(const Action& forward, const ForwardPass& out, Effects& fx) const;

  /// Who gets the error signal for chunk `chunk`.
  Ref<LearnerRole> error_to(std::int32_t chunk) const;

 private:
  bool is_head(std::int32_t chunk) const {
    return chunk + 1 == static_cast<std::int32_t>(c_.stage_of.size());
  }

  Ref<StageRole> stage_of(std::int32_t chunk) const {
    return c_.stage_of[static_cast<std::size_t>(chunk)];
  }

  Stamp stamp(const Action& a, std::int32_t chunk) const {
    return {c_.replica, chunk, a.batch, a.micro_batch};
  }

  Config c_;
};

}  // namespace troupe
