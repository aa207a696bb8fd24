// The replica's weights are copies of the servers': after each mini-batch the shard asks them, and each step is
// their answer. Gradients travel, or what their optimizer's part at the replica makes of them; where several
// go in one push, questions alone go in between.
#pragma once

#include "actors/exchange/upstream.hpp"

namespace troupe {

class CachedWeights final : public Upstream {
 public:
  explicit CachedWeights(Config config) : Upstream(std::move(config)) {}

  Label label(std::size_t slice) const override;

  bool prepare(Apply& apply, double now, Effects& fx) override;
  void archive(Archive& a) override;

 private:
  bool waits(std::int64_t /*n*/) const override { return true; }

  double rate_sent() const override { return seen_rate_; }

  double seen_rate_ = 0;  // of the weights that this push had read
};

}  // namespace troupe
