// One step for all stages, max(0, b - D), D the schedule's greatest delay: PipeDream's vertical sync
// (Harlap et al. 2018), and PipeDream-2BW (Narayanan et al. 2021), where D is 1.
#include "runtime/schemes/policies/built_in.hpp"

namespace troupe::policies {
namespace {

class Uniform final : public ViewPolicy {
 public:
  explicit Uniform(std::int64_t delay) : delay_(delay) {}

  View forward(const Action& a) const override {
    return {std::max<std::int64_t>(0, a.batch - delay_), {}};
  }

 private:
  std::int64_t delay_;
};

std::shared_ptr<const ViewPolicy> uniform_view(const WeightContext& /*context*/,
                                               const Schedule& schedule) {
  return std::make_shared<Uniform>(schedule.delay_max);
}

template <class... Parts>
Result<void> refuse(const Parts&... parts) {
  return Error{ErrorKind::usage, concat("pipeline.weights: ", parts...)};
}

Result<void> one_micro_batch(const WeightContext& /*context*/, const Schedule& schedule) {
  if (schedule.flushed || schedule.options.micro_batches == 1) {
    return {};
  }
  return refuse(
      "vertical_sync is defined for one micro-batch a mini-batch; pipeline.micro_batches is ",
      schedule.options.micro_batches,
      " (double_buffered is its form for several)");
}

Result<void> delay_of_one(const WeightContext& /*context*/, const Schedule& schedule) {
  const std::int32_t M = schedule.options.micro_batches;
  if (M < schedule.options.stages) {
    return refuse("double_buffered needs pipeline.micro_batches >= pipeline.stages (",
                  schedule.options.stages,
                  "), so that one older version is enough; it is ",
                  M);
  }
  if (schedule.delay_max > 1) {
    return refuse("double_buffered has room for a delay of 1; with ",
                  schedule.options.name,
                  " at pipeline.micro_batches ",
                  M,
                  " it is ",
                  schedule.delay_max,
                  ": raise pipeline.micro_batches or use async_one_f_one_b");
  }
  return {};
}

}  // namespace

PolicyScheme vertical_sync() {
  return {
      .info = {.name = "vertical_sync",
               .summary =
                   "every stage reads the version that the first stage read: SGD with delay K-1",
               .paper = "PipeDream: Harlap et al. 2018, arXiv:1806.03377"},
      .reads = "forward and backward W[b-(K-1)]",
      .staleness = "K-1 on every stage",
      .memory = "K",
      .view = uniform_view,
      .uniform = true,
      .fits = one_micro_batch};
}

PolicyScheme double_buffered() {
  return {.info = {.name = "double_buffered",
                   .summary = "gradients of M >= K micro-batches are accumulated, so that two "
                              "versions are enough",
                   .paper = "PipeDream-2BW: Narayanan et al., ICML 2021, arXiv:2006.09503"},
          .reads = "forward and backward W[b-1]",
          .staleness = "1 on every stage",
          .memory = "2",
          .view = uniform_view,
          .uniform = true,
          .fits = delay_of_one};
}

}  // namespace troupe::policies
