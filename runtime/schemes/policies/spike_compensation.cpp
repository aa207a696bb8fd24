// Spike compensation (Kosson et al. 2021): the weights are read as with stash, and the step gives a
// late gradient the weight that it would have had by now, W -= eta (a v + b g) with a = gamma^d and
// b = (1 - gamma^d) / (1 - gamma).
#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/schemes/optimizer_scheme.hpp"
#include "runtime/schemes/policies/built_in.hpp"

#include <cmath>

namespace troupe::policies {
namespace {

PolicyStep compensated(const WeightContext& c, std::int64_t delay) {
  const double gamma = c.experiment.optimizer().momentum();
  const double faded = std::pow(gamma, static_cast<double>(delay));
  return {.mix = {{.velocity = faded, .gradient = (1 - faded) / (1 - gamma)}}};
}

}  // namespace

WeightScheme spike_compensation() {
  return {.info = {.name = "spike_compensation",
                   .summary = "no prediction: the step gives a late gradient the weight it would "
                              "have had by now, W -= eta (a v + b g)",
                   .paper = "Kosson et al., MLSys 2021, arXiv:2003.11666"},
          .reads = "forward and backward W[b-d]",
          .staleness = "d; the same forward weights as geometric with momentum",
          .memory = "K-k",
          .view = stashed_view,
          .goes_with = [](const OptimizerScheme& o) { return o.heavy_ball; },
          .step = compensated};
}

}  // namespace troupe::policies
