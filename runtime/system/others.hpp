// The processes that play the rest of a cast, as run_on_threads() sees them. A run in one process has
// none; runtime/cluster has them.
#pragma once

#include "kernels/result.hpp"
#include "runtime/system/driver.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

struct RecordBatch;
struct Theatre;

class Others {
 public:
  /// How the machines elsewhere are getting on.
  struct Progress {
    std::uint64_t deliveries = 0;
    bool busy = false;  // a job runs
    double due = 0;     // as Theatre::due
  };

  virtual ~Others() = default;

  /// Whether machine `id` plays in this process.
  virtual bool is_here(ActorId id) const = 0;

  /// Returns when the machines of all processes stand; sets theatre.start, the same moment for all. From
  /// then on messages come from elsewhere. Error (lost) where a process was lost meanwhile.
  virtual Result<void> open(Theatre& theatre) = 0;

  /// A message to a machine elsewhere, not to be delivered before `due`, seconds of the run's clock (0:
  /// at once). Messages of one machine to another keep their order. From every thread; what is sent to a
  /// process that is lost is dropped.
  virtual void send(ActorId to, Message message, double due) = 0;

  /// Where the recorder is elsewhere: what has been recorded here. From every thread.
  virtual void record(RecordBatch batch) = 0;

  /// Where the Director is elsewhere: a machine of this process has ended by an exception.
  virtual void down(ActorId id, const std::string& cause) = 0;

  virtual Progress progress() const = 0;

  /// Fills in what the machines elsewhere say of themselves; those that do not answer are gone.
  virtual void explain(std::vector<Standstill>& told) = 0;

  /// The run is over: returns when all other processes have ended their part and all that they have
  /// recorded has been handed to the recorder. Error (lost) where one has not, so that records are missing.
  /// Nothing where the recorder is elsewhere.
  virtual Result<void> collect() = 0;

  /// This process's machines have ended; what they had still stands. Nothing comes any more, and nothing of the
  /// theatre is used, when it returns. A second time it does nothing.
  virtual void close() = 0;
};

}  // namespace troupe
