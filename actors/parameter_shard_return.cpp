// What of a decoupled module's shard outlasts a crash of its host, and how it goes on with that.
#include "actors/parameter_shard.hpp"
#include "messages/archive.hpp"
#include "messages/returns.hpp"

#include <utility>

namespace troupe {

void ParameterShard::keep(Archive& a) {
  StepWeights kept;
  if (!a.reading()) {
    kept = kept_.at(step_);
    TROUPE_CHECK(
        !kept.base.empty(), "shard ", c_.chunk, ": kept while the next step is made of it");
  }
  a(step_, kept);
  if (a.reading()) {
    kept_.clear();
    kept_[step_] = std::move(kept);
  }
}

/// Of a decoupled module: what it has kept are the weights of the step that its stage goes on with, and of those before it
/// that are still to be evaluated.
void ParameterShard::go_on(const Rejoin& m, Effects& fx) {
  fx.record(ReturnOfModule{.module = c_.chunk, .batch = m.batch, .kept = step_});
  StepWeights kept = std::move(kept_.at(step_));
  kept_.clear();
  step_ = m.batch;
  label(kept);
  for (const std::int64_t step : m.marks) {
    if (step <= step_) {
      pins_[step] = kept.base;
    }
  }
  if (end_ && step_ == *end_) {
    pins_[step_] = kept.base;
  }
  kept_[step_] = std::move(kept);
  serve(fx);
  conclude(fx);
}

}  // namespace troupe
