// One replica on its own: the step is what its optimizer makes of the gradient.
#pragma once

#include "actors/exchange/exchange.hpp"
#include "runtime/schemes/chunk_optimizer.hpp"

namespace troupe {

class Alone : public Exchange {
 public:
  explicit Alone(ChunkOptimizer rule) : rule_(std::move(rule)) {}

  double planned_rate(std::int64_t step) const override { return rule_.rate(step); }

  void applied(Applied made, double now, Effects& fx) override;

 protected:
  /// Mini-batches that the record of a step stands for.
  virtual std::int64_t mini_batches() const { return 1; }

 private:
  ChunkOptimizer rule_;
};

}  // namespace troupe
