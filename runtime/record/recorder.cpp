#include "runtime/record/recorder.hpp"

#include "experiment/pipeline.pb.h"
#include "experiment/run.pb.h"
#include "kernels/check.hpp"
#include "kernels/sequences.hpp"
#include "kernels/stream.hpp"
#include "messages/archive.hpp"
#include "messages/archive_sized.hpp"
#include "messages/sections.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe {
namespace {

constexpr std::int64_t kPushMax = 100'000;  // updates that one push may stand for
constexpr std::size_t kEachMax = 64;        // stages, or shards, that a line tells of one by one

double quotient(double a, double b) {
  return b > 0 ? a / b : 0;
}

}  // namespace

Recorder::Recorder(Config config, OutputFile* metrics, Progress* progress)
    : c_(std::move(config)),
      metrics_(metrics),
      progress_(progress),
      steps_(c_),
      shards_(static_cast<std::size_t>(c_.chunks)),
      times_(
          c_.stage_of_actor.empty()
              ? 0
              : static_cast<std::size_t>(sections::pipeline(c_.experiment).stages() *
                                         sections::pipeline(c_.experiment).width() * c_.replicas),
          c_.stage_of_actor),
      modules_(c_.chunks) {
  const proto::Experiment& e = c_.experiment;
  completed_at_ = now_ = since_.start = sections::resumed(e).seconds();
  since_.stages = times_.spent();
  since_.staleness = staleness();
  if (!c_.resumed) {
    write(HeaderLine{c_.clock, sections::name(e), sections::seed(e)});
  }
}

std::optional<Diverged> Recorder::on(const RecordEntry& entry, double now) {
  now_ = std::max(now_, now);
  const bool before = diverged_.has_value();
  std::visit([&](const auto& record) { handle(record, now); }, entry);
  return before ? std::nullopt : diverged_;
}

void Recorder::handle(const LossRecord& record, double now) {
  const std::vector<double> result = to_host(record.result);
  steps_.add(record, {result[0], result[1], record.rows, record.samples});
  complete(now);
  // Of a replica alone on servers, the mini-batches that follow the run's last may be under way at its end.
  const bool behind_the_end = c_.arrivals && c_.replicas == 1 && c_.batches > 0 &&
                              record.stamp.batch >= c_.batches * c_.batches_per_update;
  if (!diverged_ && !behind_the_end) {
    // The head works in the order of Stamps, so this is the first.
    diverged_ = divergence_of(record.stamp, result[0]);
  }
}

void Recorder::handle(const AppliedRecord& record, double now) {
  const std::int32_t chunk = record.stamp.chunk;
  TROUPE_CHECK(
      chunk >= 0 && chunk < c_.chunks, "[Recorder] an update of chunk ", chunk, " of ", c_.chunks);
  TROUPE_CHECK(record.mini_batches >= 0 && record.mini_batches / kPushMax <= c_.batches_per_update,
               "[Recorder] an update of ",
               record.mini_batches,
               " mini-batches");
  ShardTotals& shard = shards_[static_cast<std::size_t>(chunk)];
  Histogram staleness_here;
  for (const Read& read : record.reads) {
    const std::int64_t staleness = record.applied_to - read.forward_version;
    ++shard.staleness[staleness];
    ++staleness_here[staleness];
    if (sections::record(c_.experiment).versions()) {
      write(VersionsLine{record.stamp, read, record.applied_to});
    }
  }
  shard.seconds += record.seconds;
  ++shard.updates;
  if (record.gap >= 0 || std::isnan(record.gap)) {
    shard.gap += record.gap;
    ++shard.gaps;
    write(GapLine{record.applied_to, chunk, record.gap});
  }
  steps_.add(record, staleness_here);
  complete(now);
}

void Recorder::handle(const ServerRecord& record, double) {
  Summary::Server& server = record.group >= 0 ? groups_[record.group] : servers_[record.chunk];
  server.version = std::max(server.version, record.version);
  server.applied += record.applied;
  server.dropped += record.dropped;
  server.lag += record.lag;
  server.in_flight += record.in_flight;
  server.in_flight_age += record.in_flight_age;
  bytes_ += record.bytes;
  bytes_of_groups_ += record.group >= 0 ? record.bytes : 0;
}

void Recorder::handle(const EvaluationRecord& record, double now) {
  evaluations_.add(record);
  write(EvaluationLine{
      record, c_.epoch_of(record.step), evaluations_.distances_at(record.step), now});
  flush();
  if (progress_) {
    progress_->evaluation(record.step, record.loss, record.accuracy_if_any());
  }
}

void Recorder::handle(const ReplicaRecord& record, double now) {
  evaluations_.add(record);
  write(ReplicaLine{record, c_.epoch_of(record.step), now});
}

void Recorder::handle(const StageRecord& record, double) {
  std::int64_t& most = stashes_[record.stage];
  most = std::max(most, record.stashes_max);
}

void Recorder::handle(const AngleRecord& record, double) {
  write(AngleLine{record.stamp.batch, record.stamp.chunk, modules_.add(record)});
}

void Recorder::handle(const InputRecord& record, double now) {
  if (record.drawn != Drawn::none) {
    modules_.add(record);
  } else if (record.stamp.chunk + 1 == c_.chunks) {
    steps_.without_loss(record.stamp);
    complete(now);
  }
}

/// In the progress and in the summary: "lost replica 1 (...)".
void Recorder::tell(const LineKind& line, const std::string& words) {
  told_[line.list].push_back(words);
  if (progress_) {
    const std::string kind = line.kind;
    progress_->note(kind.substr(0, kind.find('_')) + ' ' + words);
  }
}

void Recorder::began_again(const std::vector<Summary::Restart>& all) {
  for (const Summary::Restart& restart : all) {
    if (std::find(restarts_.begin(), restarts_.end(), restart) == restarts_.end()) {
      restarts_.push_back(restart);
      write(restart);
    }
  }
  if (progress_ && !all.empty()) {
    progress_->note("restarted " + all.back().words());
  }
}

/// A line after the first step, after every so many, and after the last.
void Recorder::complete(double now) {
  while (steps_.complete_next()) {
    completed_at_ = now;
    const std::int64_t completed = steps_.completed();
    const std::int64_t first = sections::resumed(c_.experiment).updates() + 1;
    if (completed == first || completed == c_.batches ||
        completed % sections::record(c_.experiment).every() == 0) {
      train_line(now);
    } else if (progress_ && progress_->stale()) {
      progress_->step(progress_line(now));
    }
  }
}

ProgressLine Recorder::progress_line(double now) const {
  const Steps::Window& window = steps_.window();
  const double seconds = now - since_.start;
  ProgressLine line{
      .step = steps_.completed(),
      .samples_per_second = quotient(static_cast<double>(window.loss.samples), seconds),
      .staleness_p50 = median(window.staleness),
      .staleness_max = largest(window.staleness),
      .seconds = now};
  line.tokens_per_second = line.samples_per_second * static_cast<double>(c_.tokens);
  if (window.loss.rows > 0) {  // replicas that meet now and then have steps without a loss between
    const auto rows = static_cast<double>(window.loss.rows);
    line.loss = window.loss.sum / rows;
    line.accuracy = c_.classes ? std::optional(window.loss.right / rows) : std::nullopt;
  }
  if (seconds > 0 && times_.stages() > 0) {
    const double all = seconds * static_cast<double>(times_.stages());
    line.busy = std::clamp((times_.busy() - since_.busy) / all, 0.0, 1.0);
    line.idle = times_.idle();
    for (std::size_t want = 0; want < line.idle.size(); ++want) {
      line.idle[want] = std::clamp((line.idle[want] - since_.idle[want]) / all, 0.0, 1.0);
    }
  }
  modules_.tell(line);
  return line;
}

/// Of all stages together, since the last line; empty where none waits for another.
std::optional<Summary::Locks> Recorder::locks() const {
  if (c_.chunks <= 1 || times_.stages() == 0) {
    return {};
  }
  const IdleTimes idle = times_.idle();
  const auto since = [&](Want want) {
    const auto at = static_cast<std::size_t>(want);
    return idle[at] - since_.idle[at];
  };
  return Summary::Locks{since(Want::activation), since(Want::error)};
}

/// Since the last line; empty where the shares of all together say the same, or where there are too many.
std::map<std::int32_t, StageShares> Recorder::stage_shares(double now) const {
  std::map<std::int32_t, StageShares> all;
  const double seconds = now - since_.start;
  const std::vector<StageSpent> spent = times_.spent();
  if (seconds <= 0 || spent.size() < 2 || spent.size() > kEachMax) {
    return all;
  }
  const auto share = [seconds](double part) {
    return std::clamp(part / seconds, 0.0, 1.0);
  };
  for (std::size_t i = 0; i < spent.size(); ++i) {
    const StageSpent& before = since_.stages[i];
    StageShares& shares = all[static_cast<std::int32_t>(i)];
    shares.busy = share(spent[i].busy - before.busy);
    for (std::size_t want = 0; want < shares.idle.size(); ++want) {
      shares.idle[want] = share(spent[i].idle[want] - before.idle[want]);
    }
  }
  return all;
}

/// Likewise, of shards that have applied something.
std::map<std::int32_t, ShardStaleness> Recorder::shard_staleness() const {
  std::map<std::int32_t, ShardStaleness> all;
  if (shards_.size() < 2 || shards_.size() > kEachMax) {
    return all;
  }
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    Histogram news = shards_[i].staleness;
    for (const auto& [versions, count] : since_.staleness[i]) {
      news[versions] -= count;
    }
    std::erase_if(news, [](const auto& entry) { return entry.second <= 0; });
    if (!news.empty()) {
      all[static_cast<std::int32_t>(i)] = {.mean = mean(news), .max = largest(news)};
    }
  }
  return all;
}

void Recorder::train_line(double now) {
  const TrainLine line{.of = progress_line(now),
                       .epoch = c_.epoch_of(steps_.completed()),
                       .text = c_.tokens > 0,
                       .rate = steps_.window().rate,
                       .locks = locks(),
                       .modules = modules_.window(),
                       .predictors = modules_.predictors(),
                       .stages = stage_shares(now),
                       .shards = shard_staleness()};
  write(line);
  flush();
  if (progress_) {
    progress_->step(line.of);
  }
  steps_.begin_window();
  modules_.begin_window();
  since_ = {.start = now,
            .busy = times_.busy(),
            .idle = times_.idle(),
            .stages = times_.spent(),
            .staleness = staleness()};
}

void Recorder::finish(double now) {
  now_ = std::max(now_, now);
  if (steps_.window().steps > 0) {
    train_line(completed_at_);
  }
  if (progress_) {
    progress_->finish();
  }
}

void Recorder::flush() {
  if (metrics_) {
    (void)metrics_->flush();  // a failure is remembered and told at the end
  }
}

std::vector<Histogram> Recorder::staleness() const {
  return mapped<Histogram>(shards_, [&](const ShardTotals& shard) { return shard.staleness; });
}

Summary Recorder::summary(std::int64_t step) const {
  const auto samples_before = [&](std::int64_t steps) {
    return c_.sizes.samples_before(steps * c_.batches_per_update);
  };
  Summary s;
  s.clock = c_.clock;
  s.updates = step;
  s.epochs = c_.epoch_of(step);
  s.samples = samples_before(step);
  s.seconds = now_;
  s.samples_per_second =
      quotient(static_cast<double>(samples_before(steps_.completed())), completed_at_);
  s.tokens_per_second = s.samples_per_second * static_cast<double>(c_.tokens);
  // The step that diverged never completes.
  s.train_loss = diverged_ ? std::numeric_limits<double>::quiet_NaN() : steps_.train_loss(step);
  evaluations_.summarize(step, c_.experiment, s);
  for (std::int32_t chunk = 0; chunk < c_.chunks; ++chunk) {
    const ShardTotals& totals = shards_[static_cast<std::size_t>(chunk)];
    s.staleness[chunk] = {
        .mean = mean(totals.staleness),
        .max = largest(totals.staleness),
        .histogram = totals.staleness,
        .seconds_mean = quotient(totals.seconds, static_cast<double>(totals.updates))};
    if (totals.gaps > 0) {
      s.gap[chunk] = totals.gap / static_cast<double>(totals.gaps);
    }
  }
  times_.summarize(now_ - sections::resumed(c_.experiment).seconds(), s);
  modules_.summarize(s);
  s.stashes = stashes_;
  s.servers = servers_;
  s.groups = groups_;
  s.bytes_sent = bytes_;
  s.bytes_between_servers = groups_.empty() ? 0 : bytes_ - bytes_of_groups_;
  s.told = told_;
  s.restarts = restarts_;
  return s;
}

void Recorder::archive(Archive& a) {
  archive_sized(a, shards_, since_.stages, since_.staleness);
  a(completed_at_,
    now_,
    diverged_,
    steps_,
    since_.start,
    since_.busy,
    since_.idle,
    times_,
    evaluations_,
    modules_,
    stashes_,
    servers_,
    groups_,
    bytes_of_groups_,
    bytes_,
    told_,
    told_once_,
    restarts_);
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    expect_archived(countable(shards_[i].staleness) && countable(since_.staleness[i]),
                    "the counts of staleness are none");
  }
}

}  // namespace troupe
