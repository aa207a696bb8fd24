// averaging: the mean of the models, and of their moments where these travel. bmuf: the mean's
// movement in a block is filtered with momentum mu; the paper's form (Chen & Huo, ICASSP 2016), which
// keeps W apart from the point that replicas go on from:
//
//   G = mean - sent;  Delta' = mu Delta + zeta G;  W' = W + Delta';  sent' = W' (classical),
//   W' + mu Delta' (Nesterov's)
#include "experiment/replicas.pb.h"
#include "messages/archive.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/rules/parts.hpp"

#include <utility>

namespace troupe {
namespace {

class Averaging final : public Step {
 public:
  Updated apply(Stream& stream, Update update) override {
    Updated out;
    const std::size_t tensors = update.contributions.front().values.size();
    for (std::size_t k = 0; k < tensors; ++k) {
      const Term mean = mean_of(stream, update, Mean::by_mini_batches, k);
      // A single contribution's own tensor may be somebody else's too.
      Tensor own = update.contributions.size() > 1 ? mean.x : sum_of(stream, {mean});
      (k == 0 ? out.next : out.moments.emplace_back()) = std::move(own);
    }
    return out;
  }
};

class Bmuf final : public Step {
 public:
  explicit Bmuf(const RuleContext& context)
      : options_(sections::replicas(context.experiment).exchange().bmuf()),
        momentum_(options_.momentum() < 0 ? 1 - 1.0 / context.replicas : options_.momentum()) {}

  Updated apply(Stream& stream, Update update) override {
    const Term mean = mean_of(stream, update, Mean::by_mini_batches);
    if (!delta_) {
      delta_ = zeros(stream, update.base.elements());
    }
    const double zeta = options_.rate();
    // With sent = W + mu Delta, G = mean - W - mu Delta.
    const double kept = options_.nesterov() ? momentum_ * (1 - zeta) : momentum_;
    combine(stream, {{kept, delta_}, {zeta * mean.factor, mean.x}, {-zeta, update.base}}, delta_);
    update.contributions.clear();
    const Tensor base = std::exchange(update.base, {});
    Updated out;
    out.next = successor(stream, base);
    combine(stream, {{1, base}, {1, delta_}}, out.next);
    if (options_.nesterov()) {
      out.sent = sum_of(stream, {{1, out.next}, {momentum_, delta_}});
    }
    return out;
  }

  std::int64_t state_tensors() const override { return 1; }

  void archive(Archive& a) override { a(delta_); }

 private:
  proto::Bmuf options_;
  double momentum_;
  Tensor delta_;
};

}  // namespace

std::unique_ptr<Step> averaging_step() {
  return std::make_unique<Averaging>();
}

std::unique_ptr<Step> bmuf_step(const RuleContext& context) {
  return std::make_unique<Bmuf>(context);
}

}  // namespace troupe
