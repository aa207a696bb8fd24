// SpecTrain (Chen, Yang & Cheng 2018, arXiv:1809.02839): forward at weights predicted along the
// velocity. In its consistent form the horizon is the stage's delay in updates and the backward uses
// what the forward read; the paper counts in its time units and predicts twice.
#include "runtime/schemes/policies/built_in.hpp"
#include "runtime/schemes/policies/horizon.hpp"

namespace troupe::policies {
namespace {

class SpecTrain final : public ViewPolicy {
 public:
  explicit SpecTrain(Horizon horizon) : horizon_(horizon) {}

  View forward(const Action& a) const override {
    return {a.natural, reach_of(ReachKind::linear, horizon_.of(a.distance()))};
  }

 private:
  Horizon horizon_;
};

class SpecTrainPaper final : public ViewPolicy {
 public:
  explicit SpecTrainPaper(Horizon horizon) : horizon_(horizon) {}

  /// s = floor(k/2) + N - k - 1 in steady state; min(b, d) stands for N - k - 1 so that start-up does
  /// not over-predict.
  View forward(const Action& a) const override {
    return {a.natural, reach_of(ReachKind::linear, horizon_.of(a.distance() + a.chunk / 2))};
  }

  bool stashes() const override { return false; }

 protected:
  View unstashed(const Action& a, std::int64_t /*forward_natural*/) const override {
    return {a.natural, reach_of(ReachKind::linear, horizon_.of(a.chunk / 2))};
  }

 private:
  Horizon horizon_;
};

}  // namespace

PolicyScheme spectrain() {
  return {
      .info = {.name = "spectrain",
               .summary = "forward at weights predicted d updates ahead along the velocity, W - d "
                          "eta v, kept for the backward",
               .paper = "SpecTrain, consistent form: Chen, Yang & Cheng 2018, arXiv:1809.02839 "
                        "(horizon counted in updates)"},
      .reads = "forward and backward W[b-d] + d steps",
      .staleness = "0 where the prediction holds",
      .memory = "1 + (K-k) predictions",
      .view = [](const WeightContext& c,
                 const Schedule&) { return std::make_shared<SpecTrain>(horizon_of(c.experiment)); },
      .predicts = true,
      .steadies = true};
}

PolicyScheme spectrain_paper() {
  return {.info = {.name = "spectrain_paper",
                   .summary = "SpecTrain with the paper's horizons, in its units of time: s = "
                              "floor(k/2)+K-k-1 forward, floor(k/2) backward, predicted twice",
                   .paper = "SpecTrain: Chen, Yang & Cheng 2018, arXiv:1809.02839"},
          .reads = "forward W[b-d] + (d+floor(k/2)) steps, backward W[b] + floor(k/2) steps",
          .staleness = "looks floor(k/2) updates beyond the mini-batch's own",
          .memory = "1 + 1 or 2 predictions",
          .view =
              [](const WeightContext& c, const Schedule&) {
                return std::make_shared<SpecTrainPaper>(horizon_of(c.experiment));
              },
          .predicts = true};
}

}  // namespace troupe::policies
