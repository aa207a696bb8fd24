// lwp: one velocity at the server; the point as far ahead along it as gradients are late is sent. Kosson et
// al., MLSys 2021, arXiv:2003.11666.
#include "experiment/replicas.pb.h"
#include "messages/sections.hpp"
#include "runtime/schemes/policies/horizon.hpp"
#include "runtime/schemes/rules/parts.hpp"

namespace troupe::rule_schemes {
namespace {

/// What it sends is met at the update.
std::unique_ptr<Step> look_ahead_step(const RuleContext& c) {
  const bool paper = sections::replicas(c.experiment).horizon() == proto::Replicas::paper;
  const std::int64_t ahead = paper ? c.replicas - 1 : lag_at_servers(c.experiment).of(c.delay);
  return momentum_step(c, reach_of(ReachKind::linear, ahead));
}

}  // namespace

RuleScheme lwp() {
  return {
      .info = {.name = "lwp",
               .summary = "like heavy_ball, but the server sends a point as many steps ahead along "
                          "its velocity as gradients are late",
               .paper = "linear weight prediction: Kosson et al., MLSys 2021, arXiv:2003.11666"},
      .equations =
          "v <- gamma v + g; w <- w - eta v; sent w - (R (d+1) - 1) eta v, w - (R-1) eta "
          "v with replicas.horizon=paper",
      .memory = "1, and the point sent",
      .step = look_ahead_step,
      .own_momentum = true,
      .optimizers = momentum_optimizers(),
      .sends_elsewhere = true};
}

}  // namespace troupe::rule_schemes
