// The account of a stage's waiting: what its next action lacks, and since when. While an evaluation
// has the thread, nothing else keeps the sequence waiting, so that time is not counted.
#pragma once

#include "runtime/system/machine.hpp"

#include <optional>

namespace troupe {

class SequenceWait {
 public:
  explicit SequenceWait(ActorId self) : self_(self) {}

  /// The next action lacks `want`.
  void begin(Want want, double now, Effects& fx) {
    if (!open_ || open_->want != want) {
      end(now, fx);
      open_ = {want, now};
    }
  }

  /// It lacks nothing more, or will never start.
  void end(double now, Effects& fx) {
    if (open_ && !paused_) {
      fx.record(WaitRecord{.actor = self_, .want = open_->want, .start = open_->since, .end = now});
    }
    open_.reset();
  }

  /// An evaluation has the thread from now on.
  void pause(double now, Effects& fx) {
    if (const auto open = open_) {
      end(now, fx);
      open_ = {open->want, now};
    }
    paused_ = true;
  }

  void resume(double now) {
    paused_ = false;
    if (open_) {
      open_->since = now;
    }
  }

  void archive(auto& a) { a(open_, paused_); }

 private:
  struct Wait {
    Want want = Want::data;
    double since = 0;
  };

  ActorId self_;
  std::optional<Wait> open_;
  bool paused_ = false;
};

}  // namespace troupe
