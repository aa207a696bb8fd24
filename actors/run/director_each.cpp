// Evaluations of each replica's own weights, and evaluations that are passed over.
#include "actors/run/director.hpp"

#include <utility>

namespace troupe {

/// Those of the step are still there: no later one has been asked for.
void Director::evaluate_each(std::int64_t step, bool ends, Effects& fx) {
  each_ = {.step = step, .ends = ends};
  for (std::size_t r = 0; r < alive_.size(); ++r) {
    if (alive_[r]) {
      each_->missing.insert(static_cast<std::int32_t>(r));
      fx.send(c_.company.sources[r], MarkDue{.step = step, .own = true});
    }
  }
}

void Director::evaluated_own(const MarkDone& m, Effects& fx) {
  if (!each_ || m.step != each_->step || each_->missing.erase(m.replica) == 0) {
    return;  // of a replica that was given up
  }
  fx.record(ReplicaRecord{.replica = m.replica,
                          .step = m.step,
                          .loss = m.loss,
                          .accuracy = m.accuracy,
                          .has_accuracy = m.has_accuracy});
  end_evaluation_of_each(fx);
}

void Director::end_evaluation_of_each(Effects& fx) {
  if (each_ && each_->missing.empty()) {
    const EvaluationOfEach done = *std::exchange(each_, std::nullopt);
    evaluated(done.step, done.ends, fx);
    begin_mark(fx);
  }
}

void Director::pass_over(const std::vector<std::int64_t>& steps, Effects& fx) const {
  if (steps.empty()) {
    return;
  }
  fx.record(PassedOverRecord{static_cast<std::int64_t>(steps.size())});
  for (std::size_t r = 0; r < alive_.size(); ++r) {
    for (const auto& shard : c_.company.shards[r]) {
      for (const std::int64_t step : steps) {
        if (alive_[r]) {
          fx.send(shard, Release{.step = step, .passed_over = true});
        }
      }
    }
  }
}

}  // namespace troupe
