// XPipe (Guan et al. 2019): the first micro-batch of a mini-batch predicts, its siblings read the same
// weights; the backward reads the newest.
#include "runtime/schemes/policies/built_in.hpp"

namespace troupe::policies {
namespace {

class XPipe final : public ViewPolicy {
 public:
  View forward(const Action& a) const override {
    return {a.first_natural, reach_of(ReachKind::linear, a.batch - a.first_natural)};
  }

  bool stashes() const override { return false; }
};

}  // namespace

WeightScheme xpipe() {
  return {
      .info = {.name = "xpipe",
               .summary = "the first micro-batch of a mini-batch predicts, its siblings read the "
                          "same weights; backward at the newest",
               .paper = "XPipe: Guan et al. 2019, arXiv:1911.04610"},
      .reads = "forward W[s] + (b-s) steps, s the first micro-batch's step; backward W[b]",
      .staleness = "0 where the prediction holds",
      .memory = "2 at M = 1, up to 4 for several micro-batches: two steps, each with a prediction",
      .view = [](const WeightContext&, const Schedule&) { return std::make_shared<XPipe>(); },
      .predicts = true};
}

}  // namespace troupe::policies
