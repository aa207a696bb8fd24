// Turns records into metrics.jsonl, progress and the numbers of the summary.
//
// A line is about whole steps (steps.hpp). The kinds of lines, and what each has, are declared in lines.hpp and, of those that
// tell of one record, beside that record.
#pragma once

#include "kernels/check.hpp"
#include "messages/told_once.hpp"
#include "runtime/data/batch_sizes.hpp"
#include "runtime/record/evaluations.hpp"
#include "runtime/record/histogram.hpp"
#include "runtime/record/lines.hpp"
#include "runtime/record/module_totals.hpp"
#include "runtime/record/output_file.hpp"
#include "runtime/record/progress.hpp"
#include "runtime/record/stage_times.hpp"
#include "runtime/record/steps.hpp"
#include "runtime/record/summary.hpp"
#include "runtime/system/driver.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

class Archive;

class Recorder final : public RecordSink {
 public:
  using Config = RecorderConfig;

  /// `metrics` and `progress` may be null; both outlive the Recorder.
  Recorder(Config config, OutputFile* metrics, Progress* progress);
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Whether the record has not come before. To be asked once, before it is shown to anybody.
  bool is_news(const RecordEntry& entry) { return told_once_.is_news(entry); }

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

  /// In versions, of each shard so far.
  std::vector<Histogram> staleness() const;

  /// Steps of which everything is in.
  std::int64_t completed() const { return steps_.completed(); }

  /// The first loss that was not finite.
  const std::optional<Diverged>& diverged() const { return diverged_; }

 private:
  struct ShardTotals {
    Histogram staleness;
    double seconds = 0;
    std::int64_t updates = 0;
    double gap = 0;
    std::int64_t gaps = 0;
  };

  struct Since {                         // the last train line
    double start = 0;                    // seconds
    double busy = 0;                     // stages' busy seconds before it
    IdleTimes idle{};                    // their idle seconds before it
    std::vector<StageSpent> stages{};    // both, of each
    std::vector<Histogram> staleness{};  // of each shard before it
  };

  void handle(const LossRecord& record, double now);
  void handle(const AppliedRecord& record, double now);
  void handle(const EvaluationRecord& record, double now);
  void handle(const ReplicaRecord& record, double now);
  void handle(const StageRecord& record, double now);
  void handle(const ServerRecord& record, double now);
  void handle(const AngleRecord& record, double now);
  void handle(const InputRecord& record, double now);

  void handle(const BusyRecord& record, double) { times_.add(record); }

  void handle(const WaitRecord& record, double) { times_.add(record); }

  void handle(const TrafficRecord& record, double) { bytes_ += record.bytes; }

  void handle(const PassedOverRecord& record, double) { evaluations_.add(record); }

  void handle(const ConsensusRecord& record, double) { evaluations_.add(record); }

  void handle(const PredictionRecord& record, double) { modules_.add(record); }

  void handle(const SignalRecord& record, double) { modules_.add(record); }

  /// One that is told by itself.
  template <ToldByItself R>
  void handle(const R& record, double now) {
    write(RecordLine<R>{record, now});
    tell(R::kLine, record.words());
  }

  void tell(const LineKind& line, const std::string& words);
  void complete(double now);
  void train_line(double now);
  ProgressLine progress_line(double now) const;
  std::optional<Summary::Locks> locks() const;
  std::map<std::int32_t, StageShares> stage_shares(double now) const;
  std::map<std::int32_t, ShardStaleness> shard_staleness() const;
  void flush();

  template <class L>
  void write(const L& line) {
    if (!metrics_ && !c_.line) {
      return;
    }
    const std::string text = text_of_line(line);
    if (metrics_) {
      metrics_->write(text + '\n');
    }
    if (c_.line) {
      c_.line(text);
    }
  }

  const Config c_;
  OutputFile* metrics_;
  Progress* progress_;
  double completed_at_ = 0;  // seconds, of the last complete step
  double now_ = 0;
  std::optional<Diverged> diverged_;
  Steps steps_;
  Since since_;
  std::vector<ShardTotals> shards_;  // by chunk
  StageTimes times_;
  Evaluations evaluations_;
  ModuleTotals modules_;
  std::map<std::int32_t, std::int64_t> stashes_;  // by stage
  std::map<std::int32_t, Summary::Server> servers_;
  std::map<std::int32_t, Summary::Server> groups_;  // of the groups' own
  std::int64_t bytes_of_groups_ = 0;
  std::int64_t bytes_ = 0;
  std::map<std::string, std::vector<std::string>> told_;  // Summary::told
  ToldOnce told_once_;
  std::vector<Summary::Restart> restarts_;
};

}  // namespace troupe
