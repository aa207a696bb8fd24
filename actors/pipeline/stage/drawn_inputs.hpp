// Where modules draw their inputs from buffers (decoupled.greedy.buffer) a stage may be in front of what has been
// admitted, so that the source cannot say by itself where a run ends that is ended early:
//
//   source --Halt--> stages --Halted{mini-batches begun}--> source --End{the most of these}--> everyone
//
// In between a stage begins no mini-batch. One that has begun fewer skips the others: its updates of these change no weights, and steps, evaluations and the
// end count as ever.
#pragma once

#include "actors/pipeline/stage/arrivals.hpp"
#include "runtime/system/machine.hpp"

#include <algorithm>
#include <cstdint>
#include <map>

namespace troupe {

class DrawnInputs {
 public:
  /// The forward starts, and lacks nothing. `stamp`: its own in the run's records.
  void begin(const Action& forward, const Stamp& stamp, Arrivals& arrivals, Effects& fx) {
    begun_[forward.chunk] = forward.batch + 1;
    if (forward.chunk > 0) {
      const Arrivals::Choice choice = arrivals.draw(forward);
      fx.record(InputRecord{stamp, choice.again ? Drawn::again : Drawn::fresh, choice.replaced});
    }
  }

  /// The run is halted. Returns the mini-batches that have begun.
  std::int64_t halt() {
    run_ = Run::halted;
    std::int64_t most = 0;
    for (const auto& [chunk, batches] : begun_) {
      most = std::max(most, batches);
    }
    return most;
  }

  /// The run's end is known: what had not begun when it was halted is skipped.
  void end() { run_ = run_ == Run::halted ? Run::ended : run_; }

  bool skips() const { return run_ == Run::ended; }

  /// The run was halted before the chunk had begun this mini-batch.
  bool not_begun_at_halt(const Action& a) const {
    const auto begun = begun_.find(a.chunk);
    return run_ != Run::goes_on && a.batch >= (begun == begun_.end() ? 0 : begun->second);
  }

  void archive(auto& a) { a(begun_, run_); }

 private:
  enum class Run : std::uint8_t { goes_on, halted, ended };

  std::map<std::int32_t, std::int64_t> begun_;  // mini-batches, by chunk
  Run run_ = Run::goes_on;
};

}  // namespace troupe
