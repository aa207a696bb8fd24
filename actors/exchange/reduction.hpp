// The gradient of a mini-batch is summed over all replicas before the step, which is then the same
// at each of them (synchronous.reduction ring, tree). The sum is GradientSum's.
//
// With a linear code (runtime/schemes/codecs/summed_link.hpp) the sums are of its numbers, in one round or several:
//
//   gradient + what was left -> numbers -> sum -> [numbers of the next round -> sum ->] the mean
//
// Codes are made and read in jobs of the shard's own.
#pragma once

#include "actors/exchange/alone.hpp"
#include "actors/exchange/gradient_sum.hpp"
#include "runtime/schemes/codecs/summed_link.hpp"

#include <string>
#include <vector>

namespace troupe {

class Reduction final : public Alone {
 public:
  /// `links`: by slice; empty: gradients are summed themselves.
  Reduction(ChunkOptimizer rule, GradientSum::Config how, std::vector<SummedLink> links = {});

  bool sums() const override { return true; }

  void sum(std::vector<Tensor> gradient, TiedGradients tied, Effects& fx) override;
  void came(GradientPart m, double now, Effects& fx) override;
  void job_done(Computed m, double now, Effects& fx) override;
  void archive(Archive& a) override;
  std::string waits_for() const override;

 private:
  /// One replica's record stands for all of them.
  std::int64_t mini_batches() const override { return mini_batches_; }

  std::size_t rounds() const { return links_.front().code->rounds(); }

  void summed(std::vector<Tensor> mean, double now, Effects& fx);
  void code_next(Effects& fx);
  void read_sum(Effects& fx);

  std::int64_t mini_batches_;
  GradientSum sum_;
  std::vector<SummedLink> links_;
  std::vector<LinkState> states_;  // by slice; empty while a job has them
  std::vector<Tensor> updates_;    // by slice: the gradient and what was left of earlier ones
  std::vector<Tensor> own_;        // by slice: own numbers of the round under way
  std::vector<std::vector<Tensor>> means_;  // by slice: of the rounds so far
};

}  // namespace troupe
