// smega2: one velocity that ticks every R gradients with their mean, so that it is as if all
// replicas had pushed together, and one sum of the gradients since. Cohen, Hakimi & Schuster, ICPP
// 2022; v outside the rate.
//
//   w' = w - eta (g + gamma v);  A' = A + g;  at every R-th: v' = gamma v + A' / R, A' = 0
//   sent: w' - eta gamma ((R + c (gamma - 1)) v' + c / R A')    c: gradients since the last tick
//
// The point sent is where R more gradients lead: R - c of them before the next tick, c after it. In a pipeline whose chunk
// is d late it is where R (d + 1) more lead, d of whose ticks follow each other by R: with s = 1 + gamma + ... +
// gamma^(d-1) (0 for d = 0)
//
//   sent: w' - eta gamma ((R - c + R gamma s + c gamma^(d+1)) v' + (s + c / R gamma^d) A')
//
// With replicas.horizon=paper d counts as 0.
#include "experiment/optimizer.pb.h"
#include "messages/archive.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/policies/horizon.hpp"
#include "runtime/schemes/rules/parts.hpp"

#include <utility>

namespace troupe {
namespace {

class Smega2 final : public Step {
 public:
  explicit Smega2(const RuleContext& context)
      : replicas_(context.replicas),
        gamma_(sections::optimizer(context.experiment).momentum()),
        late_(own_pushes_ahead(context.experiment, context.delay) - 1),
        decay_(sections::optimizer(context.experiment).weight_decay()) {}

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
    const double look = update.next_rate * gamma_;
    const Ahead ahead = gradients_ahead();
    out.sent =
        sum_of(stream, {{1, out.next}, {-look * ahead.of_v, v_}, {-look * ahead.of_sum, sum_}});
    return out;
  }

  std::int64_t state_tensors() const override { return 2; }

  void archive(Archive& a) override { a(v_, sum_, count_); }

 private:
  struct Ahead {
    double of_v = 0;    // by how many times eta gamma v
    double of_sum = 0;  // by how many times eta gamma A
  };

  /// What R (d + 1) more gradients move, themselves left out.
  Ahead gradients_ahead() const {
    const double all = replicas_;
    const double c = count_;
    double ticks = 0;  // s
    double faded = 1;  // gamma^d
    for (std::int64_t i = 0; i < late_; ++i) {
      ticks += faded;
      faded *= gamma_;
    }
    return {.of_v = all - c + all * gamma_ * ticks + c * gamma_ * faded,
            .of_sum = ticks + c / all * faded};
  }

  std::int32_t replicas_;
  double gamma_;
  std::int64_t late_;  // d
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
                              "point R (d+1) gradients ahead",
                   .paper = "Cohen, Hakimi & Schuster, ICPP 2022"},
          .equations =
              "w <- w - eta (g + gamma v); A <- A + g; each R-th: v <- gamma v + A/R, A <- 0; "
              "sent w - eta gamma ((R - c + R gamma s + c gamma^(d+1)) v + (s + c/R gamma^d) A), c "
              "gradients since, s = 1 + ... + gamma^(d-1) (0 for d = 0)",
          .memory = "2, and the point sent",
          .step = [](const RuleContext& c) { return std::make_unique<Smega2>(c); },
          .own_momentum = true,
          .optimizers = momentum_optimizers(),
          .one_at_a_time = true,
          .sends_elsewhere = true};
}

}  // namespace rule_schemes

}  // namespace troupe
