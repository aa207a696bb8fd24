// ormo: momentum in the order of the gradients' iterations, not of their arrival. Shi et al. 2024,
// arXiv:2407.19234; v outside the rate.
//
// A gradient belongs to the bucket of the version that it was computed at: version 0 to bucket 0,
// versions (b-1) R + 1 to b R to bucket b. Update t, counted from 0, works on bucket floor(t / R):
// buckets open by the server's count, whether they have all of their gradients or not. When one opens,
// all before it fade: w <- w - eta gamma v, v <- gamma v. A gradient that is d buckets late enters with
// what it would have by now:
//
//   v <- v + gamma^d g;  w <- w - eta (1 - gamma^(d+1)) / (1 - gamma) g
//
// With the replicas in turn d is 0, and R updates are one step with momentum on their sum. A
// replica that is a bucket ahead counts with the present one.
#include "experiment/optimizer.pb.h"
#include "messages/archive.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/rules/parts.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {
namespace {

class Ormo final : public Step {
 public:
  explicit Ormo(const RuleContext& context)
      : replicas_(context.replicas),
        gamma_(sections::optimizer(context.experiment).momentum()),
        decay_(sections::optimizer(context.experiment).weight_decay()) {}

  Updated apply(Stream& stream, Update update) override {
    const Contribution& push = only(update);
    const Term g = decayed_gradient(stream, push, update.base, decay_);
    if (!v_) {
      v_ = zeros(stream, update.base.elements());
    }
    const std::int64_t read = update.version - push.lag;
    const std::int64_t bucket = (read + replicas_ - 1) / replicas_;
    const auto late =
        static_cast<double>(std::max<std::int64_t>(0, update.version / replicas_ - bucket));
    const bool opens = update.version % replicas_ == 0;
    const double entered = std::pow(gamma_, late);
    const double moved = (1 - entered * gamma_) / (1 - gamma_);
    update.contributions.clear();
    const Tensor base = std::exchange(update.base, {});
    Updated out;
    out.next = successor(stream, base);
    combine(stream,
            {{1, base},
             {opens ? -update.rate * gamma_ : 0, v_},
             {-update.rate * moved * g.factor, g.x}},
            out.next);
    combine(stream, {{opens ? gamma_ : 1, v_}, {entered * g.factor, g.x}}, v_);
    return out;
  }

  std::int64_t state_tensors() const override { return 1; }

  void archive(Archive& a) override { a(v_); }

 private:
  std::int32_t replicas_;
  double gamma_;
  double decay_;
  Tensor v_;
};

}  // namespace

namespace rule_schemes {

RuleScheme ormo() {
  return {
      .info = {.name = "ormo",
               .summary =
                   "momentum that is ordered by the iterations of the gradients, in buckets of R",
               .paper = "Shi et al., NeurIPS 2024, arXiv:2407.19234"},
      .equations =
          "with every R-th update of the server a bucket opens: w <- w - eta gamma v, v <- "
          "gamma v; a gradient d buckets late: v <- v + gamma^d g, w <- w - eta (1 - "
          "gamma^(d+1)) / (1 - gamma) g; it is of bucket ceil(version that it was computed at / R)",
      .memory = "1",
      .step = [](const RuleContext& c) { return std::make_unique<Ormo>(c); },
      .own_momentum = true,
      .optimizers = momentum_optimizers(),
      .one_at_a_time = true,
      .counts_each = true,
      .sends_elsewhere = true};
}

}  // namespace rule_schemes

}  // namespace troupe
