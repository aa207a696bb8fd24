// Rules that apply each gradient as it comes: by the experiment's optimizer, with a velocity at the server
// or one for each replica, or with a rate for each parameter.
#include "runtime/schemes/rules/parts.hpp"

#include <memory>

namespace troupe {
namespace {

class AsTheyCome final : public Admission {
 public:
  std::int64_t answers_by(const Ledger& /*ledger*/) const override { return 0; }
};

}  // namespace

std::unique_ptr<Admission> as_they_come() {
  return std::make_unique<AsTheyCome>();
}

namespace rule_schemes {

RuleScheme asgd() {
  return {
      .info = {.name = "asgd",
               .summary = "each gradient is applied when it arrives, by the experiment's optimizer",
               .paper = "Downpour: Dean et al., NIPS 2012"},
      .equations = "w <- w - eta opt(g)",
      .memory = "the optimizer's moments",
      .applies_each = true};
}

RuleScheme heavy_ball() {
  return {.info = {.name = "heavy_ball",
                   .summary = "like asgd, with one velocity at the server; gradients in flight "
                              "meet weights that the velocity has moved on",
                   .paper = "Polyak 1964, applied on arrival"},
          .equations = "v <- gamma v + g; w <- w - eta v",
          .memory = "1",
          .step = [](const RuleContext& c) { return momentum_step(c, {}); },
          .own_momentum = true,
          .optimizers = momentum_optimizers()};
}

RuleScheme nag() {
  return {.info = {.name = "nag",
                   .summary =
                       "like heavy_ball, but the server sends the look-ahead point of its velocity",
                   .paper = "NAG-ASGD, the baseline of Hakimi et al. 2019, arXiv:1907.11612"},
          .equations = "v <- gamma v + g; w <- w - eta v; sent w - eta gamma v",
          .memory = "1, and the point sent",
          .step =
              [](const RuleContext& c) {
                return momentum_step(c, {ReachKind::geometric, 1});
              },
          .own_momentum = true,
          .optimizers = momentum_optimizers(),
          .sends_elsewhere = true};
}

RuleScheme multi() {
  return {.info = {.name = "multi",
                   .summary = "like heavy_ball, but the server keeps a velocity for each replica, "
                              "so that they do not mix",
                   .paper = "Multi-ASGD, an ablation of Hakimi et al. 2019, arXiv:1907.11612"},
          .equations = "v_i <- gamma v_i + g; w <- w - eta v_i",
          .memory = "R",
          .step = multi_step,
          .own_momentum = true,
          .optimizers = momentum_optimizers(),
          .one_at_a_time = true,
          .sends_elsewhere = true};
}

RuleScheme adagrad() {
  return {.info = {.name = "adagrad",
                   .summary = "like asgd, with a learning rate for each parameter: works for many "
                              "replicas, without momentum",
                   .paper = "Downpour: Dean et al., NIPS 2012; Duchi et al. 2011"},
          .equations = "s <- s + g^2; w <- w - eta g / (sqrt(s) + epsilon)",
          .memory = "1",
          .step = adagrad_step,
          .optimizers = {"sgd", "momentum", "adagrad"},
          .normalises = true};
}

}  // namespace rule_schemes

}  // namespace troupe
