// Which steps of a run are complete, and what its losses were: since the last line of metrics, and in the last epoch.
//
// A step is complete when the losses of all its micro-batches and the updates of all its shards are in. Losses are summed in
// double and in the order of their Stamps, so that no sum depends on who was faster. With several replicas, or servers, a
// step is complete when the updates of chunk 0 stand for so many mini-batches, and losses count when they come.
#pragma once

#include "messages/archive.hpp"
#include "messages/record.hpp"
#include "messages/sections.hpp"
#include "runtime/data/batch_sizes.hpp"
#include "runtime/record/histogram.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// What a run's records are counted by.
struct RecorderConfig {
  BoxedExperiment experiment;           // resolved
  std::string clock;                    // "real" or "virtual"
  BatchSizes sizes;                     // of the mini-batches of all replicas
  std::int64_t batches = 0;             // of the run; 0 where that is not known
  std::int64_t batches_per_update = 1;  // mini-batches that a step stands for
  std::int32_t replicas = 1;
  bool arrivals = false;  // several replicas, or servers: steps are counted as they come
  std::int32_t chunks = 1;
  std::int32_t heads = 1;   // chunks that end with the loss, each of its own samples: the last ones
  bool classes = true;      // predictions can be right or wrong
  std::int64_t tokens = 0;  // of a sample, each with a target of its own; 0: samples are no text
  bool resumed = false;     // the header has been written
  // By ActorId: whose time its jobs take; -1: nobody's; empty: all nobody's
  std::vector<std::int32_t> stage_of_actor;
  /// Where set, called with each line of metrics.jsonl as it is written, and where no file is; must not throw.
  std::function<void(std::string_view)> line{};

  /// Mini-batches of all replicas over those of an epoch.
  double epoch_of(std::int64_t step) const { return sizes.epochs(step * batches_per_update); }
};

class Steps {
 public:
  /// Sums of one micro-batch or more.
  struct Loss {
    double sum = 0;
    double right = 0;
    std::int64_t rows = 0;
    std::int64_t samples = 0;
    std::int64_t batch = -1;  // of one replica on servers; else not known

    /// Adds the sums of another one; `batch` stays.
    Loss& operator+=(const Loss& more);
  };

  struct Window {  // since the last train line
    Loss loss;
    std::int64_t steps = 0;
    Histogram staleness;
    double rate = 0;  // of the last chunk
  };

  /// `config` outlives it.
  explicit Steps(const RecorderConfig& config);

  void add(const LossRecord& record, const Loss& loss);
  /// `staleness`: that of its reads.
  void add(const AppliedRecord& record, const Histogram& staleness);
  /// A micro-batch that has no loss, for the last module has passed over it.
  void without_loss(const Stamp& stamp);

  /// Counts the next step where it is complete. False: it is not yet.
  bool complete_next();

  /// Steps of which everything is in.
  std::int64_t completed() const { return completed_; }

  const Window& window() const { return window_; }

  void begin_window();

  /// Mean over the last epoch before `step`, or over the run where it is shorter; NaN where there was no loss.
  double train_loss(std::int64_t step) const;

  void archive(Archive& a);

 private:
  struct Step {                           // a mini-batch that is not complete yet
    std::map<std::int32_t, Loss> losses;  // by micro-batch and head
    std::int32_t updates = 0;             // shards that have applied it
    double rate = 0;                      // of the last chunk
    Histogram staleness;
  };

  Step& step_of(std::int64_t batch);
  void keep_arrived(const LossRecord& record, const Loss& loss);
  void forget_old_epoch();

  const RecorderConfig& c_;
  std::int64_t losses_;  // of a mini-batch
  std::int64_t completed_;
  std::int64_t mini_batches_;  // arrivals: in the updates of chunk 0
  std::deque<Step> open_;      // from step completed_ on
  Window window_;
  std::deque<Loss> epoch_;  // by step: the fewest last ones that make an epoch
};

}  // namespace troupe
