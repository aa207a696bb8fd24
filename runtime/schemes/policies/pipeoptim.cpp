// PipeOptim (Guan et al. 2023): forward at weights predicted by the optimizer's own direction; the
// backward reads the newest.
#include "runtime/schemes/policies/built_in.hpp"

namespace troupe::policies {
namespace {

class PipeOptim final : public ViewPolicy {
 public:
  View forward(const Action& a) const override {
    return {a.natural, reach_of(ReachKind::linear, a.distance())};
  }

  bool stashes() const override { return false; }
};

}  // namespace

WeightScheme pipeoptim() {
  return {
      .info = {.name = "pipeoptim",
               .summary = "forward at weights predicted d updates ahead by the optimizer's own "
                          "direction; backward at the newest",
               .paper = "PipeOptim: Guan et al. 2023, arXiv:2312.00839"},
      .reads = "forward W[b-d] + d steps, backward W[b]",
      .staleness = "0 where the prediction holds, 0 in the backward",
      .memory = "1 + 1 prediction",
      .view = [](const WeightContext&, const Schedule&) { return std::make_shared<PipeOptim>(); },
      .predicts = true};
}

}  // namespace troupe::policies
