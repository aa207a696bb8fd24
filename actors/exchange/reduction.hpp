// The gradient of a mini-batch is summed over all replicas before the step, which is then the same
// at each of them (synchronous.reduction ring, tree). The sum is GradientSum's.
#pragma once

#include "actors/exchange/alone.hpp"
#include "actors/exchange/gradient_sum.hpp"

namespace troupe {

class Reduction final : public Alone {
 public:
  Reduction(ChunkOptimizer rule, GradientSum::Config how);

  bool sums() const override { return true; }

  void sum(std::vector<Tensor> gradient, TiedGradients tied, Effects& fx) override;
  void came(GradientPart m, double now, Effects& fx) override;
  void did(Summed m, double now, Effects& fx) override;
  void archive(Archive& a) override;
  std::string waits_for() const override;

 private:
  /// One replica's record stands for all of them.
  std::int64_t mini_batches() const override { return mini_batches_; }

  std::int64_t mini_batches_;
  GradientSum sum_;
};

}  // namespace troupe
