// What an actor did not work at, of a traced run: why, and what kept it. Every moment is one thing, so that the parts of an
// actor's time add up.
#pragma once

#include "runtime/record/trace_timeline.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

/// Nanoseconds of the run's clock, the end excluded.
struct TimeSpan {
  std::int64_t start = 0;
  std::int64_t end = 0;
};

/// What is known of one actor.
struct ActorTimes {
  struct Lacked : TimeSpan {
    std::uint8_t want = 0;
  };

  std::vector<TimeSpan> busy{};     // with messages and jobs
  std::vector<TimeSpan> pending{};  // it had a message, or a job to do
  std::vector<Lacked> wants{};      // what its sequence lacked; one at a time
};

/// A thread, and the actors that take turns on it.
class ThreadTimes {
 public:
  /// Puts the times of each in order, and those that overlap together. They outlive it.
  ThreadTimes(const std::vector<ActorTimes*>& actors, TimeSpan run);

  /// All that is not busy of the run of one of them: slices named by what it lacked, their category what kept it.
  std::vector<TraceSlice> waiting_of(const ActorTimes& actor) const;

 private:
  struct Turn : TimeSpan {
    const char* keeps = "";  // an actor of the thread that has something to do
  };

  const char* kept_by(std::int64_t at) const;

  TimeSpan run_;
  std::vector<Turn> turns_;  // one behind the other, from the run's beginning to its end
};

}  // namespace troupe
