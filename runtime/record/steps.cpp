#include "runtime/record/steps.hpp"

#include "experiment/pipeline.pb.h"
#include "experiment/run.pb.h"
#include "kernels/check.hpp"
#include "messages/archive.hpp"
#include "messages/archive_sized.hpp"
#include "messages/sections.hpp"

#include <algorithm>
#include <limits>

namespace troupe {
namespace {

constexpr std::int64_t kOpenMax = 10'000'000;  // mini-batches: some gigabytes

}  // namespace

Steps::Loss& Steps::Loss::operator+=(const Loss& more) {
  sum += more.sum;
  right += more.right;
  rows += more.rows;
  samples += more.samples;
  return *this;
}

Steps::Steps(const RecorderConfig& config)
    : c_(config),
      losses_(sections::pipeline(config.experiment).micro_batches() * config.heads),
      completed_(sections::resumed(config.experiment).updates()),
      mini_batches_(completed_ * config.batches_per_update) {}

void Steps::add(const LossRecord& record, const Loss& loss) {
  if (c_.arrivals) {
    keep_arrived(record, loss);
  } else {
    const std::int32_t head = record.stamp.chunk + c_.heads - c_.chunks;
    step_of(record.stamp.batch).losses[record.stamp.micro_batch * c_.heads + head] = loss;
  }
}

void Steps::add(const AppliedRecord& record, const Histogram& staleness) {
  if (c_.arrivals) {
    merge(window_.staleness, staleness);
    if (record.stamp.chunk == 0 && record.slice == 0) {
      window_.rate = record.rate;
      mini_batches_ += record.mini_batches;
    }
    return;
  }
  Step& step = step_of(record.stamp.batch);
  merge(step.staleness, staleness);
  ++step.updates;
  if (record.stamp.chunk + 1 == c_.chunks) {
    step.rate = record.rate;
  }
}

void Steps::without_loss(const Stamp& stamp) {
  step_of(stamp.batch).losses[stamp.micro_batch] = {};
}

void Steps::keep_arrived(const LossRecord& record, const Loss& loss) {
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
  } else if (static_cast<std::int64_t>(epoch_.size()) > kept * losses_) {
    epoch_.pop_front();
  }
}

bool Steps::complete_next() {
  if (c_.arrivals) {
    if (completed_ >= mini_batches_ / c_.batches_per_update) {
      return false;
    }
  } else {
    if (open_.empty() || static_cast<std::int64_t>(open_.front().losses.size()) != losses_ ||
        open_.front().updates != c_.chunks) {
      return false;
    }
    Loss loss;
    for (const auto& [micro_batch, part] : open_.front().losses) {
      loss += part;
    }
    window_.loss += loss;
    merge(window_.staleness, open_.front().staleness);
    window_.rate = open_.front().rate;
    epoch_.push_back(loss);
    forget_old_epoch();
    open_.pop_front();
  }
  ++window_.steps;
  ++completed_;
  return true;
}

void Steps::begin_window() {
  window_ = {.loss = {}, .steps = 0, .staleness = {}, .rate = window_.rate};
}

double Steps::train_loss(std::int64_t step) const {
  Loss loss;
  const std::int64_t end = step * c_.batches_per_update;
  const std::int64_t begin = end - c_.sizes.batches_per_epoch();
  for (const Loss& of_step : epoch_) {
    if (of_step.batch >= 0 && (of_step.batch < begin || of_step.batch >= end)) {
      continue;  // beyond the end, or of the epoch before
    }
    loss += of_step;
  }
  return loss.rows > 0 ? loss.sum / static_cast<double>(loss.rows)
                       : std::numeric_limits<double>::quiet_NaN();
}

Steps::Step& Steps::step_of(std::int64_t batch) {
  const std::int64_t index = batch - completed_;
  TROUPE_CHECK(index >= 0, "[Recorder] a record of mini-batch ", batch, ", which was complete");
  TROUPE_CHECK(
      index < kOpenMax, "[Recorder] mini-batch ", batch, " while ", completed_, " is open");
  while (static_cast<std::int64_t>(open_.size()) <= index) {
    open_.emplace_back();
  }
  return open_[static_cast<std::size_t>(index)];
}

/// Keeps the fewest steps that make an epoch, the last of them being `completed_`.
void Steps::forget_old_epoch() {
  constexpr double kWhole = 1 - 1e-9;
  const std::int64_t end = completed_ + 1;
  while (c_.sizes.epochs(end) -
             c_.sizes.epochs(end - static_cast<std::int64_t>(epoch_.size()) + 1) >=
         kWhole) {
    epoch_.pop_front();
  }
}

void Steps::archive(Archive& a) {
  a(completed_, mini_batches_, open_, window_, epoch_);
  if (!a.reading()) {
    return;
  }
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const std::int64_t arrived = mini_batches_ / c_.batches_per_update;
  expect_archived(completed_ >= 0 && completed_ <= kMost && mini_batches_ >= 0 &&
                      (!c_.arrivals || completed_ == arrived) && window_.steps >= 0,
                  "the counts of updates are none");
  expect_archived(countable(window_.staleness), "the counts of staleness are none");
  for (const Step& step : open_) {
    expect_archived(countable(step.staleness), "the counts of staleness are none");
  }
}

}  // namespace troupe
