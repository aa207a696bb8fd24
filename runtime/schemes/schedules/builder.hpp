// How a schedule is written: a function that appends a stage's actions. One file a schedule, named
// after it.
#pragma once

#include "runtime/schemes/schedule.hpp"

#include <algorithm>

namespace troupe {

/// Appends actions to the prologue, then, after begin_period(), to the period of mini-batch
/// `first_batch`. Micro-batches are counted through: n = b M + j.
class SequenceBuilder {
 public:
  SequenceBuilder(const ScheduleOptions& options, std::int32_t stage)
      : options_(options), stage_(stage) {}

  std::int32_t stage() const { return stage_; }

  std::int64_t K() const { return options_.stages; }

  std::int64_t M() const { return options_.micro_batches; }

  std::int64_t chunks_per_stage() const { return options_.chunks_per_stage; }

  std::int64_t synchronous_batches() const { return options_.synchronous_batches; }

  std::int64_t to_loss() const { return K() - 1 - stage_; }  // d_k

  void forward(std::int64_t n) { add(Act::forward, stage_, n); }

  void backward(std::int64_t n) { add(Act::backward, stage_, n); }

  void input_gradient(std::int64_t n) { add(Act::input_gradient, stage_, n); }

  void weight_gradient(std::int64_t n) { add(Act::weight_gradient, stage_, n); }

  void update(std::int64_t batch) { add(Act::update, stage_, batch * M()); }

  void add(Act act, std::int64_t chunk, std::int64_t n) {
    target_->push_back({.act = act,
                        .chunk = static_cast<std::int32_t>(chunk),
                        .batch = n / M(),
                        .micro_batch = static_cast<std::int32_t>(n % M())});
  }

  void begin_period() { target_ = &sequence.period; }

  Sequence sequence;

 private:
  const ScheduleOptions& options_;
  std::int32_t stage_;
  std::vector<Action>* target_ = &sequence.prologue;
};

void sequential(SequenceBuilder& s);
void gpipe(SequenceBuilder& s);
void one_f_one_b(SequenceBuilder& s);
void interleaved(SequenceBuilder& s);
void zb_h1(SequenceBuilder& s);
void async_one_f_one_b(SequenceBuilder& s);
void async_full_duplex(SequenceBuilder& s);

/// One flushed mini-batch of 1F1B: the part that one_f_one_b repeats and asynchronous warm-ups
/// begin with.
void flushed_one_f_one_b(SequenceBuilder& s, std::int64_t batch);

}  // namespace troupe
