#include "runtime/record/stage_times.hpp"

#include <algorithm>
#include <string_view>

namespace troupe {
namespace {

/// Work of an optimizer or of a predictor, on their stage's thread.
bool beside_the_stage(std::string_view what) {
  return what == "update" || what == "predict" || what == "teach";
}

}  // namespace

void StageTimes::add(const BusyRecord& record) {
  if (Stage* stage = of(record.actor)) {
    stage->busy += record.end - record.start;
    if (beside_the_stage(record.what)) {
      stage->updates.emplace_back(record.start, record.end);
    } else {  // no wait that has still to be told began before the last such job
      std::erase_if(stage->updates, [&](const auto& job) { return job.second <= stage->began; });
      stage->began = record.start;
    }
  }
}

void StageTimes::add(const WaitRecord& record) {
  if (Stage* stage = of(record.actor)) {
    double idle = record.end - record.start;
    for (const auto& [start, end] : stage->updates) {
      idle -= std::max(0.0, std::min(end, record.end) - std::max(start, record.start));
    }
    stage->idle[static_cast<std::size_t>(record.want)] += std::max(idle, 0.0);
    stage->tells = true;
  }
}

double StageTimes::busy() const {
  double sum = 0;
  for (const Stage& stage : stages_) {
    sum += stage.busy;
  }
  return sum;
}

IdleTimes StageTimes::idle() const {
  IdleTimes sum{};
  for (const Stage& stage : stages_) {
    for (std::size_t want = 0; want < sum.size(); ++want) {
      sum[want] += stage.idle[want];
    }
  }
  return sum;
}

std::vector<StageSpent> StageTimes::spent() const {
  std::vector<StageSpent> all;
  for (const Stage& stage : stages_) {
    all.push_back({stage.busy, stage.idle});
  }
  return all;
}

void StageTimes::summarize(double seconds, Summary& summary) const {
  const auto share = [&](double part) {
    return seconds > 0 ? std::clamp(part / seconds, 0.0, 1.0) : 0.0;
  };
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const Stage& stage = stages_[i];
    const auto number = static_cast<std::int32_t>(i);
    summary.busy[number] = share(stage.busy);
    if (stage.tells) {
      std::transform(stage.idle.begin(), stage.idle.end(), summary.idle[number].begin(), share);
      summary.locks[number] = {.forward = stage.idle[static_cast<std::size_t>(Want::activation)],
                               .backward = stage.idle[static_cast<std::size_t>(Want::error)]};
    }
  }
}

StageTimes::Stage* StageTimes::of(ActorId actor) {
  const std::int32_t stage = actor < stage_of_actor_.size() ? stage_of_actor_[actor] : -1;
  return stage >= 0 ? &stages_[static_cast<std::size_t>(stage)] : nullptr;
}

}  // namespace troupe
