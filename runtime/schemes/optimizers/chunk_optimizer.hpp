// The experiment's optimizer as a chunk has it: the scheme with its options, the rate of each step, and
// by how much a View's reach moves.
#pragma once

#include "messages/proto.hpp"
#include "messages/stamp.hpp"
#include "runtime/schemes/optimizers/optimizer_scheme.hpp"
#include "runtime/schemes/optimizers/rate.hpp"
#include "runtime/schemes/policies/policy.hpp"

#include <cstdint>

namespace troupe {

class ChunkOptimizer {
 public:
  /// `delay`: the chunk's, in updates; `synchronous`: flushed mini-batches at the start of all.
  /// ContractError where the experiment's weight policy has not been registered.
  ChunkOptimizer(const proto::Experiment& experiment,
                 Rate rate,
                 std::int64_t delay,
                 std::int64_t synchronous);

  const OptimizerScheme& scheme() const { return *scheme_; }

  const OptionValues& values() const { return values_; }

  /// c of w -= u + c (u - u of the update before), u the whole step; 0 where the chunk's gradients are in time.
  double error_feedback() const { return error_feedback_; }

  /// The smoothed displacement is kept, with this decay: the weight policy wants it, or error feedback, and that
  /// as it was in the last update alone.
  bool displacement() const { return changed_.displacement_decay > 0 || error_feedback_ > 0; }

  /// Weight decay leaves out biases, norms and embeddings.
  bool decays_matrices_alone() const { return decays_matrices_alone_; }

  double displacement_decay() const { return changed_.displacement_decay; }

  /// The rate of the update that follows `step`: the schedule's, divided as the weight policy says.
  double rate(std::int64_t step) const;

  /// The numbers of update t = 1, 2, ... at `rate`.
  UpdateNumbers numbers(std::int64_t t, double rate) const;

  /// The same for the kernel of a scheme that has one. Advances `carried`, which starts at 1.
  UpdateScalars scalars(const UpdateNumbers& numbers, double& carried) const;

  /// prediction = w - factor * direction, for a reach from the step that update t = 1, 2, ... has made,
  /// where the next update's rate is `rate`.
  double factor(const Reach& reach, std::int64_t t, double rate) const;

 private:
  double faded(std::int64_t t, std::int64_t horizon) const;

  const PolicyScheme* policy_;
  OptionValues policy_values_;
  PolicyStep changed_;  // by the policy
  double error_feedback_ = 0;
  bool decays_matrices_alone_ = false;
  const OptimizerScheme* scheme_ = nullptr;
  OptionValues values_;    // of the optimizer
  UpdateNumbers numbers_;  // what is the same in every update
  Rate rate_;
  std::int64_t synchronous_;
};

}  // namespace troupe
