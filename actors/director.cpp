#include "actors/director.hpp"

#include "actors/ending.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe {

Director::Director(Config config) : c_(std::move(config)), alive_(c_.sources.size(), true) {}

std::int32_t Director::evaluator() const {
  const auto living = std::find(alive_.begin(), alive_.end(), true);
  return static_cast<std::int32_t>(living - alive_.begin());
}

void Director::handle(End m, double, Effects& fx) {
  if (!c_.each_finishes && !c_.evaluate && (!concluding_ || m.batches < *concluding_)) {
    release(m.batches, true, fx);
  }
}

void Director::handle(MarkDue m, double, Effects& fx) {
  if (c_.each_finishes && m.step <= announced_) {
    return;  // another replica has seen it first
  }
  announced_ = m.step;
  if (!c_.evaluate || (m.last && m.step == measured_)) {
    release(m.step, m.last, fx);
    return;
  }
  announce(m, fx);
}

void Director::announce(const MarkDue& m, Effects& fx) {
  if (c_.each_finishes && marks_.size() > 1) {
    marks_.pop_back();  // it waits for its turn, and would read then what this one reads
  }
  if (!c_.each_finishes && !marks_.empty() && marks_.back().step == m.step) {
    marks_.back().last |= m.last;  // the run is to end at the very step
    return;
  }
  marks_.push_back(m);
  begin_mark(fx);
}

void Director::begin_mark(Effects& fx) {
  if (!marking_ && !marks_.empty()) {
    marking_ = true;
    fx.send(c_.sources.at(static_cast<std::size_t>(evaluator())), marks_.front());
  }
}

void Director::handle(MarkDone m, double, Effects& fx) {
  const bool announced = !c_.servers.empty() || c_.each_finishes;
  if (announced) {
    if (m.replica != evaluator() || marks_.empty() || m.step != marks_.front().step) {
      return;  // of a replica that was given up
    }
    measured_ = m.step;
    m.last = marks_.front().last;
    marks_.pop_front();
    marking_ = false;
  }
  fx.record(EvaluationRecord{.step = m.step,
                             .loss = m.loss,
                             .accuracy = m.accuracy,
                             .has_accuracy = m.has_accuracy,
                             .samples = m.samples});
  if (!concluding_) {
    const bool target = c_.target_accuracy > 0 && m.accuracy >= c_.target_accuracy;
    if (target && !m.last && c_.servers.empty()) {
      halt_sources(fx);
    }
    release(m.step, target || m.last, fx);
  }
  if (announced) {
    begin_mark(fx);
  }
}

/// One where it speaks for all.
void Director::halt_sources(Effects& fx) {
  for (std::size_t r = 0; r < c_.sources.size(); ++r) {
    if (c_.each_finishes ? alive_[r] : r == 0) {
      fx.send(c_.sources[r], Halt{});
    }
  }
}

void Director::handle(Finished m, double, Effects& fx) {
  done_.insert({m.replica, m.chunk});
  updates_ = std::max(updates_, m.updates);
  end_where_all_finished(fx);
}

/// Under hogwild the run's last step is what the last of the living leaves.
void Director::end_where_all_finished(Effects& fx) {
  if (!c_.each_finishes || concluding_ || ending_) {
    return;
  }
  for (std::size_t r = 0; r < alive_.size(); ++r) {
    for (std::int32_t c = 0; c < c_.chunks && alive_[r]; ++c) {
      if (!done_.contains({static_cast<std::int32_t>(r), c})) {
        return;
      }
    }
  }
  ending_ = true;
  const MarkDue last{.step = updates_, .last = true};
  if (c_.evaluate) {
    announce(last, fx);
  } else {
    release(last.step, true, fx);
  }
}

void Director::release(std::int64_t step, bool conclude, Effects& fx) {
  if (conclude) {
    concluding_ = step;
  }
  if (c_.servers.empty()) {
    for (const auto& shard : c_.shards.at(static_cast<std::size_t>(evaluator()))) {
      fx.send(shard, Release{step, conclude});
    }
  }
  for (const auto& server : c_.servers) {
    fx.send(server, Release{step, conclude});
  }
  for (const auto& stage : c_.stages.at(static_cast<std::size_t>(evaluator()))) {
    fx.send(stage, Release{step, conclude});
  }
}

/// The run is to stop soon. Servers stand still until they hear where: at the one that has come
/// farthest, which the others reach with what is already under way.
void Director::handle(Halt, double, Effects& fx) {
  if (c_.servers.empty()) {
    halt_sources(fx);
  } else if (!std::exchange(halted_, true)) {
    for (const auto& server : c_.servers) {
      fx.send(server, Halt{});
    }
  }
}

void Director::handle(Halted m, double, Effects& fx) {
  progress_[{m.chunk, m.slice}] = m.step;
  if (progress_.size() < c_.servers.size()) {
    return;
  }
  std::int64_t end = 1;  // where nothing has been applied, the first update
  for (const auto& [server, step] : progress_) {
    end = std::max(end, step);
  }
  for (const auto& server : c_.servers) {
    fx.send(server, End{end});
  }
}

void Director::handle(Concluded m, double, Effects& fx) {
  concluded_[{m.chunk, m.slice}] = std::move(m.weights);
  conclude(fx);
}

void Director::handle(Buffers m, double, Effects& fx) {
  if (m.replica == evaluator()) {
    buffers_[m.chunk] = std::move(m.tensors);
    conclude(fx);
  }
}

void Director::conclude(Effects& fx) {
  const std::size_t parts =
      c_.servers.empty() ? static_cast<std::size_t>(c_.chunks) : c_.servers.size();
  if (concluded_.size() < parts || static_cast<std::int32_t>(buffers_.size()) < c_.chunks) {
    return;
  }
  Ending ending;
  ending.step = *concluding_;
  ending.weights.resize(static_cast<std::size_t>(c_.chunks));
  for (auto& [part, weights] : concluded_) {
    Weights& chunk = ending.weights[static_cast<std::size_t>(part.first)];
    std::move(weights.begin(), weights.end(), std::back_inserter(chunk));
  }
  for (auto& [chunk, tensors] : buffers_) {
    ending.buffers.push_back(std::move(tensors));
  }
  finish(std::move(ending), fx);
}

void Director::handle(Down m, double, Effects& fx) {
  const std::int32_t replica = c_.replica_of.empty() ? -1 : c_.replica_of.at(m.id);
  if (replica >= 0 && !alive_[static_cast<std::size_t>(replica)]) {
    return;  // it is known to be dead, and its other machines go with it
  }
  const bool others = std::count(alive_.begin(), alive_.end(), true) > 1;
  if (replica < 0 || !c_.survives || !others) {
    Ending ending = ending_of(m);
    if (replica >= 0 && !c_.survives && c_.sources.size() > 1) {
      ending.cause +=
          concat("; it is of replica ", replica, ", and an all-reduce needs all of them");
    }
    finish(std::move(ending), fx);
    return;
  }
  const std::int32_t before = evaluator();
  alive_[static_cast<std::size_t>(replica)] = false;
  fx.record(LossOfReplica{.replica = replica, .cause = m.actor + ": " + m.cause});
  for (const auto& server : c_.servers) {
    fx.send(server, Membership{.epoch = epoch_ + 1, .alive = alive_});
  }
  ++epoch_;
  if (before != evaluator()) {
    marking_ = false;
    buffers_.clear();
    begin_mark(fx);
    if (concluding_) {
      const auto now_asked = static_cast<std::size_t>(evaluator());
      for (const auto& stage : c_.stages.at(now_asked)) {
        fx.send(stage, Release{*concluding_, true});
      }
      if (c_.servers.empty()) {
        concluded_.clear();
        for (const auto& shard : c_.shards.at(now_asked)) {
          fx.send(shard, Release{*concluding_, true});
        }
      }
    }
  }
  end_where_all_finished(fx);
}

void Director::handle(Diverged m, double, Effects& fx) {
  finish(ending_of(m, c_.allow_divergence), fx);
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
