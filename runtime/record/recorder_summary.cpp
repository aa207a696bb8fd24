// What the summary of a run is made of.
#include "experiment.pb.h"
#include "runtime/record/recorder.hpp"

#include <algorithm>
#include <iterator>
#include <limits>

namespace troupe {
namespace {

double quotient(double a, double b) {
  return b > 0 ? a / b : 0;
}

}  // namespace

/// By replica, over all chunks; -1: it is gone. Empty where nobody has told.
std::vector<double> Recorder::distances_at(std::int64_t step) const {
  std::vector<double> sums;
  const auto found = consensus_.find(step);
  if (found == consensus_.end()) {
    return sums;
  }
  for (const auto& [chunk, distances] : found->second) {
    sums.resize(distances.size());
    for (std::size_t r = 0; r < distances.size(); ++r) {
      sums[r] = sums[r] < 0 || distances[r] < 0 ? -1 : sums[r] + distances[r];
    }
  }
  return sums;
}

Summary Recorder::summary(std::int64_t step) const {
  Summary s;
  s.clock = c_.clock;
  s.updates = step;
  s.epochs = epoch_of(step);
  s.samples = c_.sizes.samples_before(step * c_.batches_per_update);
  s.seconds = now_;
  s.samples_per_second =
      quotient(static_cast<double>(c_.sizes.samples_before(completed_ * c_.batches_per_update)),
               completed_at_);
  s.tokens_per_second = s.samples_per_second * static_cast<double>(c_.tokens);
  Loss loss;
  const std::int64_t end = step * c_.batches_per_update;
  const std::int64_t begin = end - c_.sizes.batches_per_epoch();
  for (const Loss& of_step : epoch_) {
    if (of_step.batch >= 0 && (of_step.batch < begin || of_step.batch >= end)) {
      continue;  // beyond the end, or of the epoch before
    }
    loss.sum += of_step.sum;
    loss.rows += of_step.rows;
  }
  const bool known = loss.rows > 0 && !diverged_;  // the step that diverged never completes
  s.train_loss =
      known ? loss.sum / static_cast<double>(loss.rows) : std::numeric_limits<double>::quiet_NaN();
  if (const auto evaluation = evaluations_.find(step); evaluation != evaluations_.end()) {
    s.test_loss = evaluation->second.loss;
    if (evaluation->second.has_accuracy) {
      s.test_accuracy = evaluation->second.accuracy;
    }
  }
  s.consensus = distances_at(step);
  if (const auto found = replicas_.find(step); found != replicas_.end()) {
    s.replicas = found->second;
  }
  s.passed_over = passed_over_;
  const auto after = bests_.upper_bound(step);
  if (const proto::Experiment& e = c_.experiment;
      (e.stop().patience() > 0 || e.record().best()) && after != bests_.begin()) {
    s.best = std::prev(after)->second;
  }
  s.patience_ended = exhausted_ == step;
  for (std::int32_t chunk = 0; chunk < c_.chunks; ++chunk) {
    const ShardTotals& totals = shards_[static_cast<std::size_t>(chunk)];
    Summary::Staleness staleness;
    staleness.mean = mean(totals.staleness);
    staleness.max = largest(totals.staleness);
    staleness.histogram = totals.staleness;
    staleness.seconds_mean = quotient(totals.seconds, static_cast<double>(totals.updates));
    s.staleness[chunk] = std::move(staleness);
    if (totals.gaps > 0) {
      s.gap[chunk] = totals.gap / static_cast<double>(totals.gaps);
    }
  }
  times_.summarize(now_ - c_.experiment.resumed().seconds(), s);
  s.stashes = stashes_;
  s.servers = servers_;
  s.groups = groups_;
  s.bytes_sent = bytes_;
  s.bytes_between_servers = groups_.empty() ? 0 : bytes_ - bytes_of_groups_;
  s.lost = lost_;
  s.returned = returned_;
  s.lost_copies = lost_copies_;
  s.restarts = restarts_;
  s.predictors = predictors_;
  s.modules = modules_;
  return s;
}

}  // namespace troupe
