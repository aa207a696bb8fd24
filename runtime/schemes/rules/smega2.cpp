// smega2: one velocity that ticks every R gradients with their mean, so that it is as if all
// replicas had pushed together, and one sum of the gradients since. Cohen, Hakimi & Schuster, ICPP
// 2022; v outside the rate.
//
//   w' = w - eta (g + gamma v);  A' = A + g;  at every R-th: v' = gamma v + A' / R, A' = 0
//   sent: w' - eta gamma ((R + c (gamma - 1)) v' + c / R A')    c: gradients since the last tick
//
// The point sent is where R more gradients lead: R - c of them before the next tick, c after it.
#include "experiment.pb.h"
#include "messages/archive.hpp"
#include "runtime/schemes/rules/parts.hpp"

#include <utility>

namespace troupe {
namespace {

class Smega2 final : public Step {
 public:
  explicit Smega2(const RuleContext& context)
      : replicas_(context.replicas),
        gamma_(context.experiment.optimizer().momentum()),
        decay_(context.experiment.optimizer().weight_decay()) {}

  Updated apply(Stream& stream, Update update) override {
    const Term g = decayed_gradient(stream, only(update), update.base, decay_);
    if (!v_) {
      v_ = zeros(stream, update.base.elements());
      sum_ = zeros(stream, update.base.elements());
    }
    update.contributions.clear();
    const Tensor base = std::exchange(update.base, {});
    Updated out;
    out.next = successor(stream, base);
    combine(
        stream, {{1, base}, {-update.rate * g.factor, g.x}, {-update.rate * gamma_, v_}}, out.next);
    combine(stream, {{1, sum_}, g}, sum_);
    const double all = replicas_;
    if (++count_ == replicas_) {
      combine(stream, {{gamma_, v_}, {1 / all, sum_}}, v_);
      fill(stream, sum_, 0);
      count_ = 0;
    }
    const double c = count_;
    const double look = update.next_rate * gamma_;
    out.sent = sum_of(
        stream, {{1, out.next}, {-look * (all + c * (gamma_ - 1)), v_}, {-look * c / all, sum_}});
    return out;
  }

  std::int64_t state_tensors() const override { return 2; }

  void archive(Archive& a) override { a(v_, sum_, count_); }

 private:
  std::int32_t replicas_;
  double gamma_;
  double decay_;
  Tensor v_;
  Tensor sum_;
  std::int32_t count_ = 0;
};

}  // namespace

namespace rule_schemes {

RuleScheme smega2() {
  return {.info = {.name = "smega2",
                   .summary = "one velocity that decays once every R gradients; the server sends a "
                              "point R gradients ahead",
                   .paper = "Cohen, Hakimi & Schuster, ICPP 2022"},
          .equations =
              "w <- w - eta (g + gamma v); A <- A + g; each R-th: v <- gamma v + A/R, A <- 0; "
              "sent w - eta gamma ((R + c (gamma-1)) v + c/R A), c gradients since",
          .memory = "2, and the point sent",
          .step = [](const RuleContext& c) { return std::make_unique<Smega2>(c); },
          .own_momentum = true,
          .optimizers = momentum_optimizers(),
          .one_at_a_time = true,
          .sends_elsewhere = true};
}

}  // namespace rule_schemes

}  // namespace troupe
