// The newest weights, whenever: what an asynchronous pipeline does that does nothing about staleness
// (Chen et al. 2012), and PACI, whose micro-batches bound the drift.
#include "runtime/schemes/policies/built_in.hpp"

namespace troupe::policies {
namespace {

class Latest final : public ViewPolicy {
 public:
  View forward(const Action& a) const override { return {a.natural, {}}; }

  bool stashes() const override { return false; }
};

}  // namespace

std::shared_ptr<const ViewPolicy> latest_view(const WeightContext& /*context*/,
                                              const Schedule& /*schedule*/) {
  return std::make_shared<Latest>();
}

PolicyScheme latest() {
  return {.info = {.name = "latest",
                   .summary = "each pass reads the newest weights: forward and backward of a "
                              "mini-batch may read different ones",
                   .paper = "Chen, Eversole, Li, Yu & Seide, Interspeech 2012"},
          .reads = "forward W[b-d], backward W[b]",
          .staleness = "d in the forward, 0 in the backward",
          .memory = "1",
          .view = latest_view,
          .newest_only = true,
          .uncounted = true};
}

PolicyScheme accumulate() {
  return {.info = {.name = "accumulate",
                   .summary = "the same as latest, bit for bit, at every M; PACI chooses so many "
                              "micro-batches for an update that they bound the drift",
                   .paper = "PACI 2026, arXiv:2606.07881"},
          .reads = "forward W[b-ceil(max(0,d-j)/M)], backward W[b]",
          .staleness = "ceil(max(0,d-j)/M)",
          .memory = "1",
          .view = latest_view,
          .newest_only = true};
}

}  // namespace troupe::policies
