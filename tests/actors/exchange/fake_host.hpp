// A shard as an Exchange sees it: it counts steps and keeps what it is told.
#pragma once

#include "actors/exchange/exchange.hpp"
#include "experiment.pb.h"
#include "tests/support/machines.hpp"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::test {

/// The rate of the update after step s is 1 / 2^s: each step is known by its rate.
inline ChunkOptimizer halving_rule() {
  proto::Experiment e;
  e.mutable_optimizer()->set_rule(proto::OptimizerRule::sgd);
  e.mutable_optimizer()->set_learning_rate(1);
  e.mutable_optimizer()->mutable_schedule()->mutable_step()->set_every(1);
  e.mutable_optimizer()->mutable_schedule()->mutable_step()->set_factor(0.5);
  return ChunkOptimizer(e, Rate(e.optimizer(), 0), 0, 0);
}

class FakeHost final : public ExchangeHost {
 public:
  /// Joins `exchange`, which it keeps, with slices of `initial`.
  template <class E>
  E& join(std::unique_ptr<E> exchange, const std::vector<Tensor>& initial) {
    E& joined = *exchange;
    exchange_ = std::move(exchange);
    exchange_->join(*this, weights_of(initial));
    return joined;
  }

  std::int64_t step() const override { return static_cast<std::int64_t>(installed.size()); }

  const Push& push() const override {
    REQUIRE(push_);
    return *push_;
  }

  void summed(std::vector<Tensor> gradient, double, Effects&) override {
    sums.push_back(std::move(gradient));
  }

  void install(StepWeights made, double, Effects&) override {
    push_.reset();
    installed.push_back(std::move(made));
  }

  void look_again(double, Effects&) override { ++looks; }

  void pin(std::int64_t step, Weights weights, Effects&) override {
    pins.emplace_back(step, std::move(weights));
  }

  void reply(const Pull& pull, Weights weights, Effects&) override {
    replies.emplace_back(pull, std::move(weights));
  }

  /// The push of the next mini-batch is under way; it read the newest step.
  void begin(std::int32_t replica = 0) {
    REQUIRE(!push_);
    push_ = Push{.from = {},
                 .stamp = {.replica = replica, .batch = step()},
                 .sequence = static_cast<std::uint64_t>(step() + 1),
                 .read_time = static_cast<double>(step()),
                 .gradient = {},
                 .reads = {{.forward = {step(), {}}, .backward = {step(), {}}}},
                 .forward = {}};
  }

  bool applying() const { return push_.has_value(); }

  std::vector<StepWeights> installed;  // step 1 and on
  std::vector<std::vector<Tensor>> sums;
  std::vector<std::pair<std::int64_t, Weights>> pins;
  std::vector<std::pair<Pull, Weights>> replies;
  int looks = 0;

 private:
  std::unique_ptr<Exchange> exchange_;
  std::optional<Push> push_;
};

}  // namespace troupe::test
