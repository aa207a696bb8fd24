// dual_averaging: what delayed gradients are proved to do no lasting harm to. Agarwal & Duchi, NIPS
// 2011, arXiv:1104.5525, section 3, with the proximal function |w - w_0|^2 / 2, so that training goes
// on from where it began and not from 0:
//
//   z <- z + g;  w = w_0 - alpha(t) z,  alpha(t) = 1 / (L + c sqrt(t + tau)), t = 1, 2, ... updates
//
// tau = R - 1 is the delay of R replicas in turn, R (d + 1) - 1 that of a chunk which is d late in its
// pipeline. The rate falls by itself, and nothing is forgotten: a gradient of the first update counts
// as much as the last one's.
#include "experiment/optimizer.pb.h"
#include "experiment/replicas.pb.h"
#include "messages/archive.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/policies/horizon.hpp"
#include "runtime/schemes/rules/parts.hpp"

#include <cmath>
#include <utility>

namespace troupe {
namespace {

class DualAveraging final : public Step {
 public:
  DualAveraging(const RuleContext& context, const proto::DualAveraging& options)
      : smoothness_(options.smoothness() > 0 ? options.smoothness() : 1 / context.rate.full()),
        growth_(options.growth()),
        delay_(lag_of(context.experiment).lag(context.delay)),
        decay_(sections::optimizer(context.experiment).weight_decay()) {}

  Updated apply(Stream& stream, Update update) override {
    const Tensor base = std::exchange(update.base, {});
    if (!start_) {
      start_ = sum_of(stream, {{1, base}});
      sum_ = zeros(stream, base.elements());
    }
    const Term g = mean_of(stream, update, Mean::plain);
    if (decay_ == 0) {
      combine(stream, {{1, sum_}, g}, sum_);
    } else {
      combine(stream, {{1, sum_}, g, {decay_, base}}, sum_);
    }
    const double alpha =
        1 / (smoothness_ + growth_ * std::sqrt(static_cast<double>(++updates_) + delay_));
    update.contributions.clear();
    Updated out;
    out.next = successor(stream, base);
    combine(stream, {{1, start_}, {-alpha, sum_}}, out.next);
    return out;
  }

  std::int64_t state_tensors() const override { return 2; }

  void archive(Archive& a) override { a(start_, sum_, updates_); }

 private:
  double
      smoothness_;  // L: one number for the whole run, as alpha multiplies all that has been summed
  double growth_;
  double delay_;
  double decay_;
  Tensor start_;  // w_0
  Tensor sum_;    // z
  std::int64_t updates_ = 0;
};

// Where replicas.step has taken the step alone, its options are there.
const proto::DualAveraging& options_of(const RuleContext& c) {
  const proto::Replicas& r = sections::replicas(c.experiment);
  return r.step().has_dual_averaging() ? r.step().dual_averaging() : r.rule().dual_averaging();
}

}  // namespace

namespace rule_schemes {

RuleScheme dual_averaging() {
  return {
      .info = {.name = "dual_averaging",
               .summary = "like delayed, with dual averaging: a step from the start along the sum "
                          "of all gradients, at a rate that falls by itself",
               .paper = "Agarwal & Duchi, NIPS 2011, arXiv:1104.5525"},
      .equations =
          "z <- z + g; w <- w_0 - z / (L + c sqrt(t + tau)), t = 1, 2, ... updates, tau = R "
          "(d+1) - 1",
      .memory = "2: z and w_0",
      .admission = [](const RuleContext&) { return cyclic(); },
      .step =
          [](const RuleContext& c) { return std::make_unique<DualAveraging>(c, options_of(c)); },
      .applies_each = true,
      .optimizers = {"sgd", "momentum"},
      .counts_each = true,
      .sends_elsewhere = true};
}

}  // namespace rule_schemes

}  // namespace troupe
