// The step part of a Rule: which update a chunk's optimizer makes, and by how much a View's reach
// moves.
#pragma once

#include "experiment.pb.h"
#include "kernels/update.hpp"
#include "messages/stamp.hpp"
#include "runtime/schemes/rate.hpp"

#include <cstdint>

namespace troupe {

class StepRule {
 public:
  /// `delay`: the chunk's, in updates; `synchronous`: flushed mini-batches at the start (PipeMare
  /// T3).
  StepRule(const proto::Experiment& experiment,
           Rate rate,
           std::int64_t delay,
           std::int64_t synchronous);

  /// Muon's is for hidden weight matrices; the other parameters take adamw with the same scalars.
  UpdateKernel kernel() const { return kernel_; }

  /// PipeMare's smoothed displacement is wanted, with this decay: D^(1/delay).
  bool displacement() const { return displacement_decay_ > 0; }

  double displacement_decay() const { return displacement_decay_; }

  /// The rate of the update that follows `step`: the schedule's, divided by delay^p under
  /// PipeMare's T1.
  double rate(std::int64_t step) const;

  /// NAdam's products of mu, carried from update to update.
  struct Products {
    double mu = 1;  // prod of mu_i, i <= t
  };

  /// The numbers of update t = 1, 2, ... at `rate`. Advances `products`.
  UpdateScalars scalars(std::int64_t t, double rate, Products& products) const;

  /// prediction = w - factor * direction, for a reach from a step whose update has rate `rate`.
  double factor(const Reach& reach, double rate) const;

 private:
  proto::Optimizer optimizer_;
  Rate rate_;
  UpdateKernel kernel_;
  double delay_;
  std::int64_t synchronous_;
  std::int64_t rescale_updates_ = 0;  // T1's annealing; 0: off
  double displacement_decay_ = 0;
};

}  // namespace troupe
