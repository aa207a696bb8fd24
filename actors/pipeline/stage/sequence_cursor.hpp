// Where a stage stands in the endless sequence of actions that the Schedule gives it, and where the
// run cuts that sequence off.
#pragma once

#include "runtime/schemes/schedules/schedule.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace troupe {

class SequenceCursor {
 public:
  SequenceCursor(std::shared_ptr<const Schedule> schedule, std::int32_t stage)
      : schedule_(std::move(schedule)),
        stage_(static_cast<std::size_t>(stage)),
        action_(sequence().at(0)) {}

  /// The action that it stands at.
  const Action& action() const { return action_; }

  /// Goes on to the next action; returns the one that it stood at.
  Action advance() { return std::exchange(action_, sequence().at(++at_)); }

  void set_end(std::int64_t batches) { end_ = batches; }

  /// Mini-batches of the run, where they are known.
  std::optional<std::int64_t> end() const { return end_; }

  /// The run is over before `a`: it is skipped.
  bool beyond_end(const Action& a) const { return end_ && a.batch >= *end_; }

  /// The first forward of `chunk` behind the action that it stands at.
  Action next_forward(std::int32_t chunk) const {
    std::uint64_t at = at_;
    Action next;
    do {
      next = sequence().at(++at);
    } while (next.act != Act::forward || next.chunk != chunk);
    return next;
  }

  void archive(auto& a) {
    a(at_, end_);
    action_ = sequence().at(at_);
  }

 private:
  const Sequence& sequence() const { return schedule_->stages[stage_]; }

  std::shared_ptr<const Schedule> schedule_;
  std::size_t stage_;
  std::uint64_t at_ = 0;
  Action action_;  // there: it is asked for at every turn
  std::optional<std::int64_t> end_;
};

}  // namespace troupe
