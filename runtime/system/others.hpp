// The processes that play the rest of a cast, as run_on_threads() sees them. A run in one process has
// none; runtime/cluster has them.
#pragma once

#include "kernels/result.hpp"
#include "messages/archive.hpp"
#include "runtime/system/driver.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace troupe {

struct RecordBatch;
struct RunState;
struct Theatre;
class Trace;

/// Bytes between this process and another.
struct LinkBytes {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
};

class Others {
 public:
  /// How the machines elsewhere are getting on.
  struct Progress {
    std::uint64_t deliveries = 0;
    bool busy = false;  // a job runs
    double due = 0;     // as Theatre::due, of this process's theatre
  };

  /// What other processes keep of a run that stands still.
  struct Kept {
    std::vector<Archived> parts{};  // each as archive_part() has written it
    std::vector<ActorId> lost{};    // machines of processes that are lost
  };

  virtual ~Others() = default;

  /// Whether machine `id` plays in this process.
  virtual bool is_here(ActorId id) const = 0;

  /// The number of the process that plays it; 0: of the Director's.
  virtual int process_of(ActorId id) const = 0;

  /// Where set, notes what crosses from process to process, and goes to the lead, or comes there, before the run is over. It
  /// outlives this.
  Trace* trace = nullptr;

  /// Whether the run goes on from a checkpoint: then all machines are frozen when it opens.
  virtual bool resumes() const = 0;

  /// Where the Director is, before open(): what all machines of the run begin with, read into `cast`.
  virtual void deal(Cast& cast, RunState& state) = 0;

  /// Returns when the machines of all processes stand, and have what they begin with; sets theatre.start, the
  /// same moment for all. From then on messages come from elsewhere. Error (lost) where a process was lost
  /// meanwhile.
  virtual Result<void> open(Theatre& theatre) = 0;

  /// A message to a machine elsewhere, not to be delivered before `due`, seconds of the run's clock (0:
  /// at once). Messages of one machine to another keep their order. From every thread; what is sent to a
  /// process that is lost is dropped.
  virtual void send(ActorId to, Message message, double due) = 0;

  /// Where the recorder is elsewhere: what has been recorded here. From every thread.
  virtual void record(RecordBatch batch) = 0;

  /// Where the Director is elsewhere: a machine of this process has ended by an exception.
  virtual void down(ActorId id, const std::string& cause) = 0;

  /// A machine here was told by `sender`, which plays elsewhere, what cannot be: its process is given up. From every
  /// thread.
  virtual void accuse(ActorId sender, const std::string& why) = 0;

  /// The process that plays machine `id`, in words.
  virtual std::string player_of(ActorId id) const = 0;
  /// Who plays what elsewhere, in sentences.
  virtual std::string players() const = 0;

  virtual Progress progress() const = 0;

  /// By process, of the channels to them; tensors in shared memory do not count. From every thread.
  virtual std::map<int, LinkBytes> traffic() const { return {}; }

  /// Fills in what the machines elsewhere say of themselves; those that do not answer are gone.
  virtual void explain(std::vector<Standstill>& told) = 0;

  // -- a run that stands still between two turns. All but settle() where the Director is.

  /// Machines elsewhere are to come to rest.
  virtual void halt() = 0;

  /// From a process whose machines are frozen and have no job: returns when nothing of any process is on its
  /// way to another. False where the halt has been given up, or the run is over.
  virtual bool settle() = 0;

  /// After settle(). Error (data) where a machine elsewhere cannot be written, (lost) where the halt has been
  /// given up.
  virtual Result<Kept> gather() = 0;

  /// All go on, whatever the halt has come to; also after open(), where machines were frozen.
  virtual void go_on() = 0;

  /// The run is over, and has ended so: returns when all other processes have ended their part and all that they have
  /// recorded has been handed to the recorder. Error (lost) where one has not, so that records are missing.
  /// Nothing where the recorder is elsewhere.
  virtual Result<void> collect(const Ending& ending) = 0;

  /// This process's machines have ended; what they had still stands. Nothing comes any more, and nothing of the
  /// theatre is used, when it returns. A second time it does nothing.
  virtual void close() = 0;
};

}  // namespace troupe
