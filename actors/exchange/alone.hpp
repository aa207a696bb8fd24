// One replica on its own: the step is what its optimizer makes of the gradient.
#pragma once

#include "actors/exchange/exchange.hpp"
#include "runtime/schemes/optimizers/chunk_optimizer.hpp"

namespace troupe {

class Alone : public Exchange {
 public:
  explicit Alone(ChunkOptimizer rule) : rule_(std::move(rule)) {}

  double planned_rate(std::int64_t step) const override { return rule_.rate(step); }

  void applied(Applied&& made, double now, Effects& fx) override;

 protected:
  /// Mini-batches that the record of a step stands for.
  virtual std::int64_t mini_batches() const { return 1; }

 private:
  ChunkOptimizer rule_;
};

/// Of a shard that is no part of the network, a predictor's: it tells the recorder nothing.
class Aside final : public Alone {
 public:
  using Alone::Alone;

  bool of_network() const override { return false; }

  void applied(Applied&& made, double now, Effects& fx) override {
    host().install({std::move(made.next), std::move(made.predictions)}, now, fx);
  }
};

}  // namespace troupe
