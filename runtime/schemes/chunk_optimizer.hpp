// The experiment's optimizer as a chunk has it: the scheme with its options, the rate of each step, and
// by how much a View's reach moves.
#pragma once

#include "messages/stamp.hpp"
#include "runtime/schemes/optimizer_scheme.hpp"
#include "runtime/schemes/rate.hpp"

#include <cstdint>

namespace troupe {

class ChunkOptimizer {
 public:
  /// `delay`: the chunk's, in updates; `synchronous`: flushed mini-batches at the start (PipeMare
  /// T3).
  ChunkOptimizer(const proto::Experiment& experiment,
                 Rate rate,
                 std::int64_t delay,
                 std::int64_t synchronous);

  const OptimizerScheme& scheme() const { return *scheme_; }

  const OptionValues& values() const { return values_; }

  /// PipeMare's smoothed displacement is wanted, with this decay: D^(1/delay).
  bool displacement() const { return displacement_decay_ > 0; }

  double displacement_decay() const { return displacement_decay_; }

  /// The rate of the update that follows `step`: the schedule's, divided by delay^p under
  /// PipeMare's T1.
  double rate(std::int64_t step) const;

  /// The numbers of update t = 1, 2, ... at `rate`.
  UpdateNumbers numbers(std::int64_t t, double rate) const;

  /// The same for the kernel of a scheme that has one. Advances `carried`, which starts at 1.
  UpdateScalars scalars(const UpdateNumbers& numbers, double& carried) const;

  /// prediction = w - factor * direction, for a reach from a step whose update has rate `rate`.
  double factor(const Reach& reach, double rate) const;

 private:
  const OptimizerScheme* scheme_;
  OptionValues values_;
  UpdateNumbers numbers_;  // what is the same in every update
  Rate rate_;
  double delay_;
  std::int64_t synchronous_;
  std::int64_t rescale_updates_ = 0;  // T1's annealing; 0: off
  double displacement_decay_ = 0;
};

}  // namespace troupe
