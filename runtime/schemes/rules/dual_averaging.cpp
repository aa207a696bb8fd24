// dual_averaging: what delayed gradients are proved to do no lasting harm to. Agarwal & Duchi, NIPS
// 2011, arXiv:1104.5525, section 3, with the proximal function |w - w_0|^2 / 2, so that training goes
// on from where it began and not from 0:
//
//   z <- z + g;  w = w_0 - alpha(t) z,  alpha(t) = 1 / (L + c sqrt(t + tau)), t = 1, 2, ... updates
//
// tau = R - 1 is the delay of R replicas in turn, R (d + 1) - 1 that of a chunk which is d late in its
// pipeline. The rate falls by itself, and nothing is forgotten: a gradient of the first update counts
// as much as the last one's.
#include "experiment.pb.h"
#include "runtime/schemes/horizon.hpp"
#include "runtime/schemes/rules/parts.hpp"

#include <cmath>
#include <utility>

namespace troupe {
namespace {

class DualAveraging final : public Step {
 public:
  DualAveraging(const RuleContext& context, const proto::DualAveraging& options)
      : smoothness_(options.smoothness()),
        growth_(options.growth()),
        delay_(lag_of(context.experiment).lag(context.delay)),
        decay_(context.experiment.optimizer().weight_decay()) {}

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
    const double L = smoothness_ > 0 ? smoothness_ : 1 / update.rate;
    const double alpha = 1 / (L + growth_ * std::sqrt(static_cast<double>(++updates_) + delay_));
    update.contributions.clear();
    Updated out;
    out.next = successor(stream, base);
    combine(stream, {{1, start_}, {-alpha, sum_}}, out.next);
    return out;
  }

  std::int64_t state_tensors() const override { return 2; }

 private:
  double smoothness_;
  double growth_;
  double delay_;
  double decay_;
  Tensor start_;  // w_0
  Tensor sum_;    // z
  std::int64_t updates_ = 0;
};

}  // namespace

std::unique_ptr<Step> dual_averaging_step(const RuleContext& context,
                                          const proto::DualAveraging& options) {
  return std::make_unique<DualAveraging>(context, options);
}

}  // namespace troupe
