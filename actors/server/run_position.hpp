// How far a server's weights have come in the run, in steps of the run, and where the run ends.
#pragma once

#include "messages/archive.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

namespace troupe {

class RunPosition {
 public:
  /// `batches_per_step`: mini-batches, over all replicas, that a step of the run stands for.
  /// `steps`: of the run; 0: until set_end().
  RunPosition(std::int64_t batches_per_step, std::int64_t steps)
      : batches_per_step_(batches_per_step), steps_(steps) {
    if (steps > 0) {
      end_ = steps;
    }
  }

  /// So many mini-batches more are in the weights.
  void add(std::int64_t mini_batches) { mini_batches_ += mini_batches; }

  std::int64_t step() const { return step_with(0); }

  /// The step once `more` mini-batches are in the weights, too.
  std::int64_t step_with(std::int64_t more) const {
    return (mini_batches_ + more) / batches_per_step_;
  }

  /// An end can be brought forward, but not put off.
  void set_end(std::int64_t step) { end_ = end_ ? std::min(*end_, step) : step; }

  std::optional<std::int64_t> end() const { return end_; }

  bool over() const { return end_ && step() >= *end_; }

  /// Servers can go beyond the end by different numbers of steps; what each has then are the weights
  /// of the end.
  std::int64_t up_to_end(std::int64_t step) const { return end_ ? std::min(step, *end_) : step; }

  /// ArchiveError where what is read never comes to an end that the run has.
  void archive(auto& a) {
    a(mini_batches_, end_);
    const bool put_off = steps_ > 0 && (!end_ || *end_ > steps_);
    if (mini_batches_ < 0 || put_off || (end_ && *end_ < 0)) {
      throw ArchiveError("a server that does not come to the run's end");
    }
  }

 private:
  std::int64_t batches_per_step_;
  std::int64_t steps_;
  std::int64_t mini_batches_ = 0;
  std::optional<std::int64_t> end_;
};

}  // namespace troupe
