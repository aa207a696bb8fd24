// The real clock: the same cast on CAF. Each machine is a typed actor of its own (actor.hpp) that is
// pinned to its thread (thread.hpp); its messages and effects are a Performer's business
// (performer.hpp). A machine that throws ends alone, and the Director, who watches over all others,
// is told with a Down.
#pragma once

#include "runtime/system/driver.hpp"
#include "runtime/system/others.hpp"

#include <functional>
#include <vector>

namespace troupe {

struct RunBounds;
class Mailboxes;

struct ThreadOptions {
  /// Where set, a job's results arrive after its modelled time (and not before the job has run).
  /// Never a sleep.
  const TimeModel* modelled = nullptr;
  /// By replica: a job's results arrive after so many times the seconds that it took. Empty: 1.
  /// Only where `modelled` is not set.
  std::vector<double> hold_back{};
  /// Where the recorder is elsewhere: whether it is told of each delivery, too.
  bool tells_order = false;
  /// One a thread, or empty. Each is used by its thread alone; that of a thread in another process by the one
  /// that hears of it.
  std::vector<OrderSink*> orders{};
  /// Where set, counts the messages that wait for each machine.
  Mailboxes* mailboxes = nullptr;
  /// Asked ten times a second: how often the user has asked to stop. 1: admit nothing more; 2: end
  /// at once.
  std::function<int()> interrupts{};
  /// Asked often: whether the run's state is wanted now. Empty: never.
  std::function<bool()> snapshot_due{};
  /// Called then and before the first interrupt is heeded, while all machines stand still and every record has
  /// been handed over.
  std::function<void(const StandingRun& run)> snapshot{};
  /// Where set, the run goes on from the state that is read from it. ArchiveError as archive_run().
  Archive* resume = nullptr;
  /// What that state is held to; null: it is this program's own.
  const RunBounds* bounds = nullptr;
  /// Where set, this process plays a part of the cast alone: the machines of the others are thrown away,
  /// and where the Director is one of them, the run goes on until they say that it is over.
  Others* others = nullptr;
  /// Seconds without a delivery or a running job after which the run is given up and what everyone
  /// waits for is told.
  double stall_seconds = 10;
};

/// Runs the cast until the Director ends it. `records` is called from one thread of its own; when
/// this returns, every record has been handed over and all threads have ended.
Ending run_on_threads(Cast& cast, RecordSink& records, const ThreadOptions& options);

}  // namespace troupe
