// XPipe (Guan et al. 2019): the first micro-batch of a mini-batch predicts, its siblings read the same
// weights, in the forward as in the backward. Horizons are those of the only published implementation
// (XpipeAdam, facebookresearch/fairscale, benchmarks/experimental), which for one micro-batch are
// SpecTrain's by position but for the rounding of odd k:
//
//   forward round((M + K - k/2 - 2) / M), a half to the even;  backward floor((M + floor(k/2) - 1) / M)
//
// There M is handed over as 1 + the index of the micro-batch since the epoch began, so that after some
// mini-batches every stage looks one update ahead, whatever its delay, and the product with the rate is
// floored, so that the backward looks ahead by nothing. Here it is the micro-batches of a mini-batch.
#include "experiment/pipeline.pb.h"
#include "messages/sections.hpp"
#include "runtime/schemes/policies/built_in.hpp"
#include "runtime/schemes/policies/horizon.hpp"

#include <cmath>

namespace troupe::policies {
namespace {

class ByPosition final : public ViewPolicy {
 public:
  ByPosition(Horizon horizon, const Schedule& schedule)
      : horizon_(horizon),
        micro_batches_(schedule.options.micro_batches),
        chunks_(schedule.chunks) {}

  View forward(const Action& a) const override {
    const double M = micro_batches_;
    const double ahead = std::nearbyint((M + chunks_ - a.chunk / 2.0 - 2) / M);
    return {a.first_natural, reach(static_cast<std::int64_t>(ahead))};
  }

  bool stashes() const override { return false; }

 protected:
  View unstashed(const Action& a, std::int64_t /*forward_natural*/) const override {
    return {a.natural, reach((micro_batches_ + a.chunk / 2 - 1) / micro_batches_)};
  }

 private:
  Reach reach(std::int64_t own) const { return reach_of(ReachKind::linear, horizon_.of(own)); }

  Horizon horizon_;
  std::int32_t micro_batches_;
  std::int32_t chunks_;
};

class ByUpdates final : public ViewPolicy {
 public:
  explicit ByUpdates(Horizon horizon) : horizon_(horizon) {}

  View forward(const Action& a) const override {
    return {a.first_natural, reach_of(ReachKind::linear, horizon_.of(a.batch - a.first_natural))};
  }

  bool stashes() const override { return false; }

 protected:
  View unstashed(const Action& a, std::int64_t /*forward_natural*/) const override {
    return {a.natural, reach_of(ReachKind::linear, horizon_.of(a.distance()))};
  }

 private:
  Horizon horizon_;
};

/// Under a flush nothing is late, and positions say nothing.
std::shared_ptr<const ViewPolicy> view_of_xpipe(const WeightContext& c, const Schedule& schedule) {
  const Horizon horizon = horizon_of(c.experiment);
  const bool by_position =
      sections::pipeline(c.experiment).weights().xpipe().horizon() == proto::Xpipe::paper;
  if (by_position && !schedule.flushed) {
    return std::make_shared<ByPosition>(horizon, schedule);
  }
  return std::make_shared<ByUpdates>(horizon);
}

}  // namespace

PolicyScheme xpipe() {
  return {
      .info = {.name = "xpipe",
               .summary = "the first micro-batch of a mini-batch predicts the weights, and the "
                          "others read the same ones, forward and backward",
               .paper = "XPipe: Guan et al. 2019, arXiv:1911.04610"},
      .reads =
          "forward W[s] + round((M+K-k/2-2)/M) steps, s the first micro-batch's step; backward "
          "W[b] + floor((M+floor(k/2)-1)/M) steps; with horizon=updates W[s] + (b-s) and W[b]",
      .staleness =
          "by position as much as floor(k/2) updates beyond the mini-batch's own; by "
          "updates 0 where the prediction holds",
      .memory = "2 at M = 1, up to 4 for several micro-batches: two steps, each with a prediction",
      .view = view_of_xpipe,
      .predicts = true};
}

}  // namespace troupe::policies
