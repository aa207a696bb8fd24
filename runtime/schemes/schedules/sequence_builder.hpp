// How a schedule is written: a function that appends one stage's actions to a SequenceBuilder.
#pragma once

#include "runtime/schemes/schedules/schedule.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// Appends actions to the prologue, then, after begin_period(), to the period: what comes once a
/// mini-batch, for ever, each time one mini-batch later. Micro-batches are counted through, n = b M + j.
/// A flushed schedule has no prologue. Mini-batches are numbered from the first that is not among
/// ScheduleOptions::synchronous_batches; those are not the schedule's business.
class SequenceBuilder {
 public:
  SequenceBuilder(const ScheduleOptions& options, std::int32_t stage, std::int64_t first_batch = 0)
      : options_(options), stage_(stage), first_batch_(first_batch) {}

  std::int32_t stage() const { return stage_; }

  std::int64_t K() const { return options_.stages; }

  std::int64_t M() const { return options_.micro_batches; }

  std::int64_t chunks_per_stage() const { return options_.chunks_per_stage; }

  std::int64_t to_loss() const { return K() - 1 - stage_; }  // d_k

  /// Of schedule file.
  const std::vector<std::string>& rows() const { return options_.rows; }

  /// Of pipeline.schedule.custom.
  const OptionValues& values() const { return options_.values; }

  void forward(std::int64_t n) { add(Act::forward, stage_, n); }

  void backward(std::int64_t n) { add(Act::backward, stage_, n); }

  void input_gradient(std::int64_t n) { add(Act::input_gradient, stage_, n); }

  void weight_gradient(std::int64_t n) { add(Act::weight_gradient, stage_, n); }

  void update(std::int64_t batch) { add(Act::update, stage_, batch * M()); }

  /// For stages of several chunks. An update's n is that of its mini-batch's first micro-batch.
  void add(Act act, std::int64_t chunk, std::int64_t n) {
    target_->push_back({.act = act,
                        .chunk = static_cast<std::int32_t>(chunk),
                        .batch = first_batch_ + n / M(),
                        .micro_batch = static_cast<std::int32_t>(n % M())});
  }

  void begin_period() { target_ = &sequence_.period; }

  Sequence take() { return std::move(sequence_); }

 private:
  const ScheduleOptions& options_;
  std::int32_t stage_;
  std::int64_t first_batch_;
  Sequence sequence_;
  std::vector<Action>* target_ = &sequence_.prologue;
};

}  // namespace troupe
