// Spike compensation (Kosson et al. 2021): the weights are read as with stash, and the step gives a
// late gradient the weight that it would have had by now, W -= eta (a v + b g) with a = gamma^d and
// b = (1 - gamma^d) / (1 - gamma). With `predict` (the paper's combination, LWP in its velocity form and
// SC) forwards are at weights predicted d updates ahead along v, besides.
#include "experiment/optimizer.pb.h"
#include "experiment/pipeline.pb.h"
#include "messages/sections.hpp"
#include "runtime/schemes/optimizers/optimizer_scheme.hpp"
#include "runtime/schemes/policies/built_in.hpp"

#include <cmath>

namespace troupe::policies {
namespace {

const proto::SpikeCompensation& asked(const WeightContext& c) {
  return sections::pipeline(c.experiment).weights().spike_compensation();
}

class Predicted final : public ViewPolicy {
 public:
  explicit Predicted(bool stashes) : stashes_(stashes) {}

  View forward(const Action& a) const override {
    return {a.natural, reach_of(ReachKind::linear, a.distance())};
  }

  bool stashes() const override { return stashes_; }

 private:
  bool stashes_;
};

std::shared_ptr<const ViewPolicy> view_of_spike_compensation(const WeightContext& c,
                                                             const Schedule& schedule) {
  if (asked(c).predict()) {
    return std::make_shared<Predicted>(asked(c).stash());
  }
  return asked(c).stash() ? stashed_view(c, schedule) : latest_view(c, schedule);
}

PolicyStep compensated(const WeightContext& c, std::int64_t delay) {
  const double gamma = sections::optimizer(c.experiment).momentum();
  const double faded = std::pow(gamma, static_cast<double>(delay));
  return {.mix = {{.velocity = faded, .gradient = (1 - faded) / (1 - gamma)}}};
}

}  // namespace

PolicyScheme spike_compensation() {
  return {.info = {.name = "spike_compensation",
                   .summary = "the step gives a late gradient the weight that it would have had by "
                              "now, W -= eta (a v + b g); predict=true adds LWP, stash=false lets "
                              "the backward read the newest weights",
                   .paper = "Kosson et al., MLSys 2021, arXiv:2003.11666"},
          .reads =
              "forward W[b-d], with predict W[b-d] + d steps along v; backward the same, without "
              "stash W[b]",
          .staleness = "d; the same forward weights as geometric with momentum",
          .memory = "K-k; without stash 1, with predict 1 more",
          .view = view_of_spike_compensation,
          .goes_with = [](const OptimizerScheme& o) { return o.heavy_ball; },
          .step = compensated};
}

}  // namespace troupe::policies
