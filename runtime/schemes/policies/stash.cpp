// PipeDream's weight stashing (Narayanan et al. 2019): the backward uses the weights of its forward.
// AsyncPP (Ajanthan et al. 2025) is the same with NAdam.
#include "runtime/schemes/optimizers/optimizer_scheme.hpp"
#include "runtime/schemes/policies/built_in.hpp"

namespace troupe::policies {
namespace {

class Stash final : public ViewPolicy {
 public:
  View forward(const Action& a) const override { return {a.natural, {}}; }
};

}  // namespace

std::shared_ptr<const ViewPolicy> stashed_view(const WeightContext& /*context*/,
                                               const Schedule& /*schedule*/) {
  return std::make_shared<Stash>();
}

PolicyScheme stash() {
  return {.info = {.name = "stash",
                   .summary = "the backward reads the weights that its forward read: a true "
                              "gradient, delayed by d",
                   .paper = "PipeDream: Narayanan et al., SOSP 2019"},
          .reads = "forward and backward W[b-d]",
          .staleness = "d",
          .memory = "K-k",
          .view = stashed_view,
          .uncounted = true,
          .steadies = true};
}

PolicyScheme nesterov() {
  return {.info = {.name = "nesterov",
                   .summary = "stash with NAdam, whose (1 - mu) factor discounts the late gradient",
                   .paper = "AsyncPP: Ajanthan et al., ICML 2025, arXiv:2505.01099"},
          .reads = "forward and backward W[b-d]",
          .staleness = "d",
          .memory = "K-k",
          .view = stashed_view,
          .goes_with = [](const OptimizerScheme& o) {
            return o.discounts_gradient;
          }};
}

}  // namespace troupe::policies
