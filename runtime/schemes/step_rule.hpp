// The step part of a Rule: which update a chunk's optimizer makes, and by how much a View's reach
// moves.
#pragma once

#include "experiment.pb.h"
#include "kernels/update.hpp"
#include "messages/stamp.hpp"
#include "runtime/schemes/policy.hpp"
#include "runtime/schemes/rate.hpp"

#include <cstdint>

namespace troupe {

class StepRule {
 public:
  /// `delay`: the chunk's, in updates; `synchronous`: flushed mini-batches at the start. ContractError
  /// where the experiment's weight policy has not been registered.
  StepRule(const proto::Experiment& experiment,
           Rate rate,
           std::int64_t delay,
           std::int64_t synchronous);

  /// Muon's is for hidden weight matrices; the other parameters take adamw with the same scalars.
  UpdateRule kernel() const { return kernel_; }

  /// The weight policy wants the smoothed displacement, with this decay.
  bool displacement() const { return changed_.displacement_decay > 0; }

  double displacement_decay() const { return changed_.displacement_decay; }

  /// The rate of the update that follows `step`: the schedule's, divided as the weight policy says.
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
  UpdateRule kernel_;
  std::int64_t synchronous_;
  const WeightScheme* policy_ = nullptr;
  OptionValues values_;  // of the policy
  PolicyStep changed_;   // by the policy
};

}  // namespace troupe
