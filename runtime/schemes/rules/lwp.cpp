// lwp: one velocity at the server; the point that R - 1 more of its steps lead to is sent. Kosson et al.,
// MLSys 2021, arXiv:2003.11666.
#include "runtime/schemes/rules/parts.hpp"

namespace troupe::rule_schemes {

RuleScheme lwp() {
  return {
      .info = {.name = "lwp",
               .summary =
                   "one velocity at the server; the point R - 1 steps ahead along it is sent",
               .paper = "linear weight prediction: Kosson et al., MLSys 2021, arXiv:2003.11666"},
      .equations = "v <- gamma v + g; w <- w - eta v; sent w - (R-1) eta v",
      .memory = "1, and the point sent",
      .step =
          [](const RuleContext& c) {
            return momentum_step(c, {ReachKind::linear, c.replicas - 1});
          },
      .own_momentum = true,
      .optimizers = momentum_optimizers(),
      .sends_elsewhere = true};
}

}  // namespace troupe::rule_schemes
