// Turns records into metrics.jsonl, progress and the numbers of the summary.
//
// A step is complete when the losses of all its micro-batches and the updates of all its shards are
// in. A line is about whole steps, in the order of their Stamps and summed in double, so that it
// does not depend on who was faster. With several replicas a step is complete when the updates of
// chunk 0 stand for so many mini-batches, and a line is about the losses that came since the one
// before. Lines, by `kind`:
//
//   header      first: schema, clock, name, seed
//   train       after the first step, every record.every steps and at the end: means since the last
//               such line
//   evaluation  one a Mark
//   gap         one a measurement: distance of the weights of forward from those of application
//   angle       one a measurement and module: between its update and backpropagation's
//   versions    with record.versions: one a micro-batch and chunk
//
// runtime/record/README.md has their fields.
#pragma once

#include "experiment.pb.h"
#include "kernels/check.hpp"
#include "messages/ending.hpp"
#include "runtime/data/batch_sizes.hpp"
#include "runtime/record/histogram.hpp"
#include "runtime/record/output_file.hpp"
#include "runtime/record/progress.hpp"
#include "runtime/record/stage_times.hpp"
#include "runtime/record/summary.hpp"
#include "runtime/system/driver.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

class Archive;
class JsonObject;

class Recorder final : public RecordSink {
 public:
  struct Config {
    proto::Experiment experiment;         // resolved
    std::string clock;                    // "real" or "virtual"
    BatchSizes sizes;                     // of the mini-batches of all replicas
    std::int64_t batches = 0;             // of the run; 0 where that is not known
    std::int64_t batches_per_update = 1;  // mini-batches that a step stands for
    std::int32_t replicas = 1;
    bool arrivals = false;  // several replicas, or servers: steps are counted as they come
    std::int32_t chunks = 1;
    bool classes = true;      // predictions can be right or wrong
    std::int64_t tokens = 0;  // of a sample, each with a target of its own; 0: samples are no text
    bool resumed = false;     // the header has been written
    // By ActorId: whose time its jobs take; -1: nobody's; empty: all nobody's
    std::vector<std::int32_t> stage_of_actor;
  };

  /// `metrics` and `progress` may be null; both outlive the Recorder.
  Recorder(Config config, OutputFile* metrics, Progress* progress);

  /// The Diverged of the first loss that is not finite.
  std::optional<Diverged> on(const RecordEntry& entry, double now) override;

  /// Writes all that it has added up, or reads it back, for checkpoints.
  void archive(Archive& a);

  /// After archive(): those of `all` that the checkpoint does not know yet are told of.
  void began_again(const std::vector<Summary::Restart>& all);

  /// The last line, of the steps since the one before. After the last record; `now`: when the run ended.
  void finish(double now);

  /// All but what only the caller knows: wall_seconds and the digests. `step`: of the weights
  /// reported.
  Summary summary(std::int64_t step) const;

  /// Steps of which everything is in.
  std::int64_t completed() const { return completed_; }

  /// The first loss that was not finite.
  const std::optional<Diverged>& diverged() const { return diverged_; }

 private:
  struct Loss {
    double sum = 0;
    double right = 0;
    std::int64_t rows = 0;
    std::int64_t samples = 0;
    std::int64_t batch = -1;  // of one replica on servers; else not known

    /// Adds the sums of another one; `batch` stays.
    Loss& operator+=(const Loss& more);
  };

  struct Step {                           // a mini-batch that is not complete yet
    std::map<std::int32_t, Loss> losses;  // by micro-batch
    std::int32_t updates = 0;             // shards that have applied it
    double rate = 0;                      // of the last chunk
    Histogram staleness;
  };

  struct Window {  // since the last train line
    Loss loss;
    std::int64_t steps = 0;
    Histogram staleness;
    double rate = 0;
    double start = 0;                                        // seconds
    double busy_start = 0;                                   // stages' busy seconds before it
    IdleTimes idle_start{};                                  // their idle seconds before it
    std::map<std::string, Summary::Predictor> predictors{};  // by name
    std::map<std::int32_t, Summary::Module> modules{};       // by chunk; not their angles
  };

  struct ShardTotals {
    Histogram staleness;
    double seconds = 0;
    std::int64_t updates = 0;
    double gap = 0;
    std::int64_t gaps = 0;
  };

  std::optional<Diverged> handle(const LossRecord& record, double now);
  std::optional<Diverged> handle(const AppliedRecord& record, double now);
  std::optional<Diverged> handle(const EvaluationRecord& record, double now);
  std::optional<Diverged> handle(const StageRecord& record, double now);
  std::optional<Diverged> handle(const ServerRecord& record, double now);
  std::optional<Diverged> handle(const LossOfReplica& record, double now);
  std::optional<Diverged> handle(const ReturnOfReplica& record, double now);
  std::optional<Diverged> handle(const LossOfCopy& record, double now);
  std::optional<Diverged> handle(const ConsensusRecord& record, double now);
  std::optional<Diverged> handle(const ReplicaRecord& record, double now);
  std::optional<Diverged> handle(const SignalRecord& record, double now);
  std::optional<Diverged> handle(const AngleRecord& record, double now);
  std::optional<Diverged> handle(const InputRecord& record, double now);

  std::optional<Diverged> handle(const BusyRecord& record, double) {
    times_.add(record);
    return {};
  }

  std::optional<Diverged> handle(const WaitRecord& record, double) {
    times_.add(record);
    return {};
  }

  std::optional<Diverged> handle(const TrafficRecord& record, double) {
    bytes_ += record.bytes;
    return {};
  }

  std::optional<Diverged> handle(const PassedOverRecord& record, double) {
    passed_over_ += record.evaluations;
    return {};
  }

  std::optional<Diverged> handle(const PredictionRecord& record, double) {
    const char* const what = record.of == PredictionOf::input ? "input-predictor-" : "predictor-";
    window_.predictors[concat(what, record.stamp.chunk)].add(record);
    return {};
  }

  Step& step_of(std::int64_t batch);
  void complete(double now);
  void forget_old_epoch();
  void complete_step(double now);
  void arrived(const LossRecord& record, const Loss& loss);
  void arrived(const AppliedRecord& record, double now);
  bool told_before(const AppliedRecord& record);
  double epoch_of(std::int64_t step) const;
  std::vector<double> distances_at(std::int64_t step) const;
  void train_line(double now);
  ProgressLine progress_line(double now) const;
  void tell_modules(ProgressLine& line) const;
  void add_modules(JsonObject& json);
  void write(const std::string& line);

  Config c_;
  OutputFile* metrics_;
  Progress* progress_;
  std::int64_t micro_batches_;
  std::int64_t completed_ = 0;
  double completed_at_ = 0;  // seconds, of the last complete step
  double now_ = 0;
  std::optional<Diverged> diverged_;
  std::deque<Step> open_;  // from step completed_ on
  Window window_;
  std::deque<Loss> epoch_;           // by step: the fewest last ones that make an epoch
  std::vector<ShardTotals> shards_;  // by chunk
  StageTimes times_;
  std::map<std::int32_t, std::int64_t> stashes_;          // by stage
  std::map<std::int64_t, EvaluationRecord> evaluations_;  // by step, the last few
  // By step, the last few that were better than all before
  std::map<std::int64_t, EvaluationRecord> bests_;
  // By step, the last few, and chunk: ConsensusRecord::distances
  std::map<std::int64_t, std::map<std::int32_t, std::vector<double>>> consensus_;
  // By step, the last few, and replica
  std::map<std::int64_t, std::map<std::int32_t, ReplicaRecord>> replicas_;
  std::int64_t passed_over_ = 0;  // evaluations
  // Step of the evaluation after which patience was at its end
  std::optional<std::int64_t> exhausted_;
  std::int64_t mini_batches_ = 0;  // arrivals: in the updates of chunk 0
  std::map<std::int32_t, Summary::Server> servers_;
  std::map<std::int32_t, Summary::Server> groups_;  // of the groups' own
  std::int64_t bytes_of_groups_ = 0;
  std::int64_t bytes_ = 0;
  std::vector<std::string> lost_;
  std::vector<std::string> returned_;
  std::vector<std::string> lost_copies_;
  // Servers with copies may tell again what one that was lost had told. By replica, chunk and slice the version and
  // the mini-batch of the last update, and the (chunk, slice) that have told their account.
  std::map<std::pair<std::int32_t, std::pair<std::int32_t, std::size_t>>,
           std::pair<std::int64_t, std::int64_t>>
      applied_;
  std::set<std::pair<std::int32_t, std::size_t>> accounts_;
  std::vector<Summary::Restart> restarts_;
  std::map<std::string, Summary::Predictor> predictors_;  // of the last train line
  std::map<std::int32_t, Summary::Module> modules_;       // by chunk
};

}  // namespace troupe
