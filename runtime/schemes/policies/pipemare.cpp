// PipeMare (Yang et al. 2021). T1: the rate is divided by delay^p, p falling from 1 to 0. T2: the
// backward reconstructs the weights of its forward from a smoothed displacement. T3: the first epochs
// are flushed.
#include "experiment/pipeline.pb.h"
#include "messages/sections.hpp"
#include "runtime/schemes/policies/built_in.hpp"

#include <cmath>

namespace troupe::policies {
namespace {

class PipeMare final : public ViewPolicy {
 public:
  View forward(const Action& a) const override { return {a.natural, {}}; }

  bool stashes() const override { return false; }

 protected:
  View unstashed(const Action& a, std::int64_t forward_natural) const override {
    return {a.natural, reach_of(ReachKind::displacement, forward_natural - a.natural)};
  }
};

const proto::Pipemare& options(const WeightContext& c) {
  return sections::pipeline(c.experiment).weights().pipemare();
}

/// Without T2 there is no displacement to go back along.
std::shared_ptr<const ViewPolicy> view_of_pipemare(const WeightContext& c,
                                                   const Schedule& schedule) {
  return options(c).correct() ? std::make_shared<PipeMare>() : latest_view(c, schedule);
}

PolicyStep step(const WeightContext& c, std::int64_t delay) {
  PolicyStep step;
  const auto tau = static_cast<double>(delay);
  if (options(c).rescale() && delay > 1 && options(c).anneal() > 0) {
    // T1: eta / tau^p, p = 1 - min(t / T, 1), t counted from the first asynchronous update.
    step.rate_divisor = [tau, T = static_cast<double>(options(c).anneal())](double t) {
      return std::pow(tau, 1 - std::min(t / T, 1.0));
    };
  }
  if (options(c).correct() && delay > 0) {
    step.displacement_decay = std::pow(options(c).decay(), 1 / tau);
  }
  return step;
}

}  // namespace

PolicyScheme pipemare() {
  return {.info = {.name = "pipemare",
                   .summary = "T1: rate / delay^p; T2: backward at old weights reconstructed as W "
                              "- d delta; T3: synchronous epochs first",
                   .paper = "PipeMare: Yang et al., MLSys 2021, arXiv:1910.05124"},
          .reads = "forward W[b-d], backward W[b] - d steps of the smoothed displacement",
          .staleness = "d",
          .memory = "2, and delta",
          .view = view_of_pipemare,
          .step = step,
          .synchronous_epochs = [](const WeightContext& c) {
            return static_cast<double>(options(c).synchronous_epochs());
          }};
}

}  // namespace troupe::policies
