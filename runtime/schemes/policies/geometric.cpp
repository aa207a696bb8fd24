// Look-aheads along a velocity that fades: FTPipe's msnag (Eliad et al. 2021) as far as the stage's
// delay, NWPT (Rao & Shyamala) one momentum step, Nesterov's, on every stage.
#include "runtime/schemes/optimizers/optimizer_scheme.hpp"
#include "runtime/schemes/policies/built_in.hpp"
#include "runtime/schemes/policies/horizon.hpp"

namespace troupe::policies {
namespace {

class Geometric final : public ViewPolicy {
 public:
  explicit Geometric(Horizon horizon) : horizon_(horizon) {}

  View forward(const Action& a) const override {
    return {a.natural, reach_of(ReachKind::geometric, horizon_.of(a.distance()))};
  }

 private:
  Horizon horizon_;
};

/// One of the replica's own steps, in which others make theirs.
class OneStep final : public ViewPolicy {
 public:
  explicit OneStep(Horizon horizon) : horizon_(horizon) {}

  View forward(const Action& a) const override {
    return {a.natural, reach_of(ReachKind::geometric, horizon_.stride())};
  }

 private:
  Horizon horizon_;
};

}  // namespace

PolicyScheme geometric() {
  return {
      .info = {.name = "geometric",
               .summary = "d steps ahead, the velocity fading: W - eta S_d v, S_d = gamma + ... + "
                          "gamma^d; with Adam its bias corrections, too",
               .paper = "msnag of FTPipe: Eliad et al., ATC 2021"},
      .reads = "forward and backward W[b-d] + d fading steps",
      .staleness = "0 where later gradients are small",
      .memory = "1 + (K-k) predictions",
      .view = [](const WeightContext& c,
                 const Schedule&) { return std::make_shared<Geometric>(horizon_of(c.experiment)); },
      .predicts = true,
      .goes_with =
          [](const OptimizerScheme& o) {
            return o.heavy_ball || o.fades;
          }};
}

PolicyScheme nwpt() {
  return {
      .info = {.name = "nwpt",
               .summary = "one momentum step ahead, W - eta gamma v, on every stage: Nesterov's "
                          "look-ahead, whatever the delay",
               .paper = "Rao & Shyamala, Novel Weight Prediction Technique"},
      .reads = "forward and backward W[b-d] + 1 fading step",
      .staleness = "about d-1",
      .memory = "1 + (K-k) predictions",
      .view = [](const WeightContext& c,
                 const Schedule&) { return std::make_shared<OneStep>(horizon_of(c.experiment)); },
      .predicts = true,
      .goes_with =
          [](const OptimizerScheme& o) {
            return o.heavy_ball;
          }};
}

}  // namespace troupe::policies
