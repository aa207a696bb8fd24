#include "runtime/record/recorder.hpp"

#include "experiment.pb.h"
#include "kernels/stream.hpp"
#include "runtime/record/json.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace troupe {
namespace {

constexpr std::size_t kEvaluationsKept = 64;   // few are ever under way together
constexpr std::int64_t kPushMax = 100'000;     // updates that one push may stand for
constexpr std::int64_t kOpenMax = 10'000'000;  // mini-batches: some gigabytes
constexpr int kSchema = 1;  // of metrics.jsonl; grows when a field changes its meaning

double ratio(double a, double b) {
  return b > 0 ? a / b : 0;
}

}  // namespace

Recorder::Loss& Recorder::Loss::operator+=(const Loss& more) {
  sum += more.sum;
  right += more.right;
  rows += more.rows;
  samples += more.samples;
  return *this;
}

Recorder::Recorder(Config config, OutputFile* metrics, Progress* progress)
    : c_(std::move(config)),
      metrics_(metrics),
      progress_(progress),
      micro_batches_(c_.experiment.pipeline().micro_batches()),
      shards_(static_cast<std::size_t>(c_.chunks)),
      times_(c_.stage_of_actor.empty()
                 ? 0
                 : static_cast<std::size_t>(c_.experiment.pipeline().stages() * c_.replicas),
             c_.stage_of_actor) {
  const proto::Resumed& before = c_.experiment.resumed();
  completed_ = before.updates();
  mini_batches_ = completed_ * c_.batches_per_update;
  completed_at_ = now_ = window_.start = before.seconds();
  if (!c_.resumed) {
    write(JsonObject{}
              .add("kind", "header")
              .add("schema", kSchema)
              .add("clock", c_.clock)
              .add("name", c_.experiment.name())
              .add("seed", c_.experiment.seed())
              .text());
  }
}

std::optional<Diverged> Recorder::on(const RecordEntry& entry, double now) {
  now_ = std::max(now_, now);
  return std::visit([&](const auto& record) { return handle(record, now); }, entry);
}

std::optional<Diverged> Recorder::handle(const LossRecord& record, double now) {
  const std::vector<double> result = to_host(record.result);
  const Loss loss{result[0], result[1], record.rows, record.samples};
  if (c_.arrivals) {
    arrived(record, loss);
  } else {
    step_of(record.stamp.batch).losses[record.stamp.micro_batch] = loss;
    complete(now);
  }
  // Of a replica alone on servers, the mini-batches that follow the run's last may be under way at its end.
  const bool behind_the_end = c_.arrivals && c_.replicas == 1 && c_.batches > 0 &&
                              record.stamp.batch >= c_.batches * c_.batches_per_update;
  if (!diverged_ && !behind_the_end) {
    // The head works in the order of Stamps, so this is the first.
    diverged_ = divergence_of(record.stamp, result[0]);
    return diverged_;
  }
  return {};
}

std::optional<Diverged> Recorder::handle(const AppliedRecord& record, double now) {
  const std::int32_t chunk = record.stamp.chunk;
  TROUPE_CHECK(
      chunk >= 0 && chunk < c_.chunks, "[Recorder] an update of chunk ", chunk, " of ", c_.chunks);
  TROUPE_CHECK(record.mini_batches >= 0 && record.mini_batches / kPushMax <= c_.batches_per_update,
               "[Recorder] an update of ",
               record.mini_batches,
               " mini-batches");
  if (told_before(record)) {
    return {};
  }
  ShardTotals& shard = shards_[static_cast<std::size_t>(chunk)];
  Histogram staleness_here;
  for (const Read& read : record.reads) {
    const std::int64_t staleness = record.applied_to - read.forward_version;
    ++shard.staleness[staleness];
    ++staleness_here[staleness];
    if (c_.experiment.record().versions()) {
      write(JsonObject{}
                .add("kind", "versions")
                .add("replica", record.stamp.replica)
                .add("batch", record.stamp.batch)
                .add("micro_batch", read.micro_batch)
                .add("stage", chunk)
                .add("forward", read.forward_version)
                .add("forward_steps", read.forward.reach.horizon)
                .add("backward", read.backward_version)
                .add("backward_steps", read.backward.reach.horizon)
                .add("applied_to", record.applied_to)
                .text());
    }
  }
  shard.seconds += record.seconds;
  ++shard.updates;
  if (record.gap >= 0 || std::isnan(record.gap)) {
    shard.gap += record.gap;
    ++shard.gaps;
    write(JsonObject{}
              .add("kind", "gap")
              .add("step", record.applied_to)
              .add("shard", concat("shard-", chunk))
              .add("gap", record.gap)
              .text());
  }
  if (c_.arrivals) {
    merge(window_.staleness, staleness_here);
    arrived(record, now);
    return {};
  }
  Step& step = step_of(record.stamp.batch);
  merge(step.staleness, staleness_here);
  ++step.updates;
  if (chunk + 1 == c_.chunks) {
    step.rate = record.rate;
  }
  complete(now);
  return {};
}

void Recorder::arrived(const LossRecord& record, const Loss& loss) {
  window_.loss += loss;
  epoch_.push_back(loss);
  const std::int64_t kept = c_.sizes.batches_per_epoch();
  if (c_.replicas == 1) {
    // Its mini-batches are applied in their order, and those that no update has yet may never be.
    epoch_.back().batch = record.stamp.batch;
    // Chunk 0 may be more than an epoch in front of the head (decoupled.ahead).
    const std::int64_t applied = std::min(mini_batches_, record.stamp.batch + 1);
    while (epoch_.front().batch < applied - kept) {
      epoch_.pop_front();
    }
  } else if (static_cast<std::int64_t>(epoch_.size()) > kept * micro_batches_) {
    epoch_.pop_front();
  }
}

void Recorder::arrived(const AppliedRecord& record, double now) {
  if (record.stamp.chunk != 0 || record.slice != 0) {
    return;
  }
  window_.rate = record.rate;
  mini_batches_ += record.mini_batches;
  while (completed_ < mini_batches_ / c_.batches_per_update) {
    ++window_.steps;
    complete_step(now);
  }
}

std::optional<Diverged> Recorder::handle(const ServerRecord& record, double) {
  const bool again = !accounts_.insert({record.chunk, record.slice}).second;
  if (again && !lost_copies_.empty()) {
    return {};
  }
  Summary::Server& server = record.group >= 0 ? groups_[record.group] : servers_[record.chunk];
  server.version = std::max(server.version, record.version);
  server.applied += record.applied;
  server.dropped += record.dropped;
  server.lag += record.lag;
  server.in_flight += record.in_flight;
  server.in_flight_age += record.in_flight_age;
  bytes_ += record.bytes;
  bytes_of_groups_ += record.group >= 0 ? record.bytes : 0;
  return {};
}

/// Mini-batches of all replicas over those of an epoch.
double Recorder::epoch_of(std::int64_t step) const {
  return c_.sizes.epochs(step * c_.batches_per_update);
}

std::optional<Diverged> Recorder::handle(const EvaluationRecord& record, double now) {
  // One that was under way when another ended the run comes after it, and is not of its weights.
  const auto keep = [&](std::map<std::int64_t, EvaluationRecord>& records) {
    records[record.step] = record;
    if (records.size() > kEvaluationsKept) {
      records.erase(records.begin());
    }
  };
  keep(evaluations_);
  if (record.better) {
    keep(bests_);
  }
  if (record.patience_ended) {
    exhausted_ = record.step;
  }
  JsonObject line;
  line.add("kind", "evaluation")
      .add("step", record.step)
      .add("epoch", epoch_of(record.step))
      .add("loss", record.loss);
  record.has_accuracy ? line.add("accuracy", record.accuracy) : line.add_null("accuracy");
  if (const std::vector<double> distances = distances_at(record.step); !distances.empty()) {
    line.add("consensus", consensus_of(distances));
  }
  write(line.add("samples", record.samples).add("seconds", now).text());
  if (metrics_) {
    (void)metrics_->flush();  // a failure is remembered and told at the end
  }
  if (progress_) {
    progress_->evaluation(record.step,
                          record.loss,
                          record.has_accuracy ? std::optional(record.accuracy) : std::nullopt);
  }
  return {};
}

std::optional<Diverged> Recorder::handle(const ConsensusRecord& record, double) {
  consensus_[record.step][record.chunk] = record.distances;  // a step may be evaluated twice
  if (consensus_.size() > kEvaluationsKept) {
    consensus_.erase(consensus_.begin());
  }
  return {};
}

std::optional<Diverged> Recorder::handle(const ReplicaRecord& record, double now) {
  replicas_[record.step][record.replica] = record;
  if (replicas_.size() > kEvaluationsKept) {
    replicas_.erase(replicas_.begin());
  }
  JsonObject line;
  line.add("kind", "replica")
      .add("step", record.step)
      .add("epoch", epoch_of(record.step))
      .add("replica", static_cast<std::int64_t>(record.replica))
      .add("loss", record.loss);
  record.has_accuracy ? line.add("accuracy", record.accuracy) : line.add_null("accuracy");
  write(line.add("seconds", now).text());
  return {};
}

std::optional<Diverged> Recorder::handle(const StageRecord& record, double) {
  std::int64_t& most = stashes_[record.stage];
  most = std::max(most, record.stashes_max);
  return {};
}

Recorder::Step& Recorder::step_of(std::int64_t batch) {
  const std::int64_t index = batch - completed_;
  TROUPE_CHECK(index >= 0, "[Recorder] a record of mini-batch ", batch, ", which was complete");
  TROUPE_CHECK(
      index < kOpenMax, "[Recorder] mini-batch ", batch, " while ", completed_, " is open");
  while (static_cast<std::int64_t>(open_.size()) <= index) {
    open_.emplace_back();
  }
  return open_[static_cast<std::size_t>(index)];
}

void Recorder::complete(double now) {
  while (!open_.empty() &&
         static_cast<std::int64_t>(open_.front().losses.size()) == micro_batches_ &&
         open_.front().updates == c_.chunks) {
    Loss loss;
    for (const auto& [micro_batch, part] : open_.front().losses) {
      loss += part;
    }
    window_.loss += loss;
    ++window_.steps;
    merge(window_.staleness, open_.front().staleness);
    window_.rate = open_.front().rate;
    epoch_.push_back(loss);
    forget_old_epoch();
    open_.pop_front();
    complete_step(now);
  }
}

void Recorder::complete_step(double now) {
  ++completed_;
  completed_at_ = now;
  const std::int64_t first = c_.experiment.resumed().updates() + 1;
  if (completed_ == first || completed_ == c_.batches ||
      completed_ % c_.experiment.record().every() == 0) {
    train_line(now);
  } else if (progress_ && progress_->stale()) {
    progress_->step(progress_line(now));
  }
}

/// Keeps the fewest steps that make an epoch, the last of them being `completed_`.
void Recorder::forget_old_epoch() {
  constexpr double kWhole = 1 - 1e-9;
  const std::int64_t end = completed_ + 1;
  while (c_.sizes.epochs(end) -
             c_.sizes.epochs(end - static_cast<std::int64_t>(epoch_.size()) + 1) >=
         kWhole) {
    epoch_.pop_front();
  }
}

ProgressLine Recorder::progress_line(double now) const {
  const auto rows = static_cast<double>(window_.loss.rows);
  const double seconds = now - window_.start;
  ProgressLine line{.step = completed_,
                    .loss = {},
                    .accuracy = {},
                    .samples_per_second = ratio(static_cast<double>(window_.loss.samples), seconds),
                    .tokens_per_second = 0,
                    .staleness_p50 = median(window_.staleness),
                    .staleness_max = largest(window_.staleness),
                    .busy = {},
                    .idle = {},
                    .synthetic = {},
                    .angle = {},
                    .estimate_error = {},
                    .estimate_cosine = {},
                    .seconds = now};
  line.tokens_per_second = line.samples_per_second * static_cast<double>(c_.tokens);
  if (window_.loss.rows > 0) {  // replicas that meet now and then have steps without a loss between
    line.loss = window_.loss.sum / rows;
    line.accuracy = c_.classes ? std::optional(window_.loss.right / rows) : std::nullopt;
  }
  if (seconds > 0 && times_.stages() > 0) {
    const double all = seconds * static_cast<double>(times_.stages());
    line.busy = std::clamp((times_.busy() - window_.busy_start) / all, 0.0, 1.0);
    line.idle = times_.idle();
    for (std::size_t want = 0; want < line.idle.size(); ++want) {
      line.idle[want] = std::clamp((line.idle[want] - window_.idle_start[want]) / all, 0.0, 1.0);
    }
  }
  tell_modules(line);
  return line;
}

void Recorder::train_line(double now) {
  const ProgressLine line = progress_line(now);
  JsonObject json;
  json.add("kind", "train").add("step", line.step).add("epoch", epoch_of(line.step));
  line.loss ? json.add("loss", *line.loss) : json.add_null("loss");
  line.accuracy ? json.add("accuracy", *line.accuracy) : json.add_null("accuracy");
  json.add("samples_per_second", line.samples_per_second);
  if (c_.tokens > 0) {
    json.add("tokens_per_second", line.tokens_per_second);
  }
  json.add("rate", window_.rate)
      .add("staleness_p50", line.staleness_p50)
      .add("staleness_max", line.staleness_max)
      .add("seconds", now);
  line.busy ? json.add("busy", *line.busy) : json.add_null("busy");
  json.add("idle", idle_object(line.idle));
  add_modules(json);
  write(json.text());
  if (metrics_) {
    (void)metrics_->flush();  // a failure is remembered and told at the end
  }
  if (progress_) {
    progress_->step(line);
  }
  window_ = {.loss = {},
             .steps = 0,
             .staleness = {},
             .rate = window_.rate,
             .start = now,
             .busy_start = times_.busy(),
             .idle_start = times_.idle()};
}

void Recorder::finish(double now) {
  now_ = std::max(now_, now);
  if (window_.steps > 0) {
    train_line(completed_at_);
  }
  if (progress_) {
    progress_->finish();
  }
}

void Recorder::write(const std::string& line) {
  if (metrics_) {
    metrics_->write(line);
    metrics_->write("\n");
  }
}

}  // namespace troupe
