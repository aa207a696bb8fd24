#include "actors/director.hpp"

#include <utility>

namespace troupe {

void Director::handle(End m, double, Effects& fx) {
  if (!c_.evaluate && (!concluding_ || m.batches < *concluding_)) {
    release(m.batches, true, fx);
  }
}

void Director::handle(MarkDone m, double, Effects& fx) {
  if (concluding_) {
    return;
  }
  const bool target = c_.target_accuracy > 0 && m.accuracy >= c_.target_accuracy;
  if (target && !m.last) {
    fx.send(c_.source, Halt{});
  }
  release(m.step, target || m.last, fx);
}

void Director::release(std::int64_t step, bool conclude, Effects& fx) {
  if (conclude) {
    concluding_ = step;
  }
  for (const auto& shard : c_.shards) {
    fx.send(shard, Release{step, conclude});
  }
  for (const auto& stage : c_.stages) {
    fx.send(stage, Release{step, conclude});
  }
}

void Director::handle(Concluded m, double, Effects& fx) {
  concluded_[m.chunk] = std::move(m.weights);
  conclude(fx);
}

void Director::handle(Buffers m, double, Effects& fx) {
  buffers_[m.chunk] = std::move(m.tensors);
  conclude(fx);
}

void Director::conclude(Effects& fx) {
  if (concluded_.size() < c_.shards.size() || buffers_.size() < c_.shards.size()) {
    return;
  }
  Ending ending;
  ending.step = *concluding_;
  for (auto& [chunk, weights] : concluded_) {
    ending.weights.push_back(std::move(weights));
  }
  for (auto& [chunk, tensors] : buffers_) {
    ending.buffers.push_back(std::move(tensors));
  }
  finish(std::move(ending), fx);
}

void Director::handle(Down m, double, Effects& fx) {
  Ending ending;
  ending.exit_code = static_cast<int>(ErrorKind::lost);
  ending.cause = m.actor + " is lost: " + m.cause;
  finish(std::move(ending), fx);
}

void Director::handle(Diverged m, double, Effects& fx) {
  Ending ending;
  ending.exit_code = c_.allow_divergence ? 0 : static_cast<int>(ErrorKind::diverged);
  ending.cause =
      concat("training diverged: the loss of mini-batch ", m.stamp.batch, " is ", m.loss);
  ending.step = m.stamp.batch;
  finish(std::move(ending), fx);
}

void Director::finish(Ending ending, Effects& fx) {
  if (!std::exchange(finished_, true)) {
    fx.finish(std::move(ending));
  }
}

std::string Director::waits_for() const {
  if (finished_) {
    return "";
  }
  return concluding_ ? "the weights of step " + std::to_string(*concluding_) : "the end of the run";
}

}  // namespace troupe
