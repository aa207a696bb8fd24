// PipeOptim (Guan et al. 2023): forward at weights predicted by the optimizer's own direction; the
// backward reads the newest. On servers that is late by what the other replicas do until the gradient is
// there, and so is predicted, too.
#include "runtime/schemes/policies/built_in.hpp"
#include "runtime/schemes/policies/horizon.hpp"

namespace troupe::policies {
namespace {

class PipeOptim final : public ViewPolicy {
 public:
  explicit PipeOptim(Horizon horizon) : horizon_(horizon) {}

  View forward(const Action& a) const override { return ahead(a); }

  bool stashes() const override { return false; }

 protected:
  View unstashed(const Action& a, std::int64_t /*forward_natural*/) const override {
    return ahead(a);
  }

 private:
  View ahead(const Action& a) const {
    return {a.natural, reach_of(ReachKind::linear, horizon_.of(a.distance()))};
  }

  Horizon horizon_;
};

}  // namespace

PolicyScheme pipeoptim() {
  return {
      .info = {.name = "pipeoptim",
               .summary = "forward at weights predicted d updates ahead by the optimizer's own "
                          "direction; backward at the newest",
               .paper = "PipeOptim: Guan et al. 2023, arXiv:2312.00839"},
      .reads = "forward W[b-d] + d steps, backward W[b]",
      .staleness = "0 where the prediction holds, 0 in the backward",
      .memory = "1 + 1 prediction",
      .view = [](const WeightContext& c,
                 const Schedule&) { return std::make_shared<PipeOptim>(horizon_of(c.experiment)); },
      .predicts = true};
}

}  // namespace troupe::policies
