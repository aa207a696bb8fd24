// A run between two turns: what every machine keeps, and the messages that are on their way. Made and
// read by both clocks.
#pragma once

#include "messages/archive.hpp"
#include "messages/bounds.hpp"
#include "runtime/system/machine.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

/// A message that has been sent and not been delivered.
struct Pending {
  double time = 0;             // when it is due, seconds of the run's clock
  std::uint64_t sequence = 0;  // of two that are due at once the smaller is first
  ActorId to = 0;
  Message message{};
};

/// In the order of deliveries.
bool earlier(const Pending& x, const Pending& y);

/// What a run is besides its machines.
struct RunState {
  double now = 0;                // seconds of the run's clock
  std::uint64_t delivered = 0;   // messages so far
  std::vector<Pending> pending;  // those of one recipient in their order
  // Machines that an exception has ended, or that were lost with their process
  std::vector<ActorId> gone;
  std::vector<double> free_at;        // by thread: when its last modelled job is over
  std::vector<ActorId> members{};     // whose machines are written; empty: of all that play here
  std::vector<Archived> elsewhere{};  // what other processes have written by archive_part()
  const RunBounds* bounds = nullptr;  // what is read is held to; null: it is this program's own
};

/// Writes machines of `cast` and `state` but what comes from elsewhere, or reads them back into machines that
/// were made alike. ArchiveError, with the name of the machine, where one cannot be written or is not what was
/// read.
void archive_part(Archive& a, Cast& cast, RunState& state);

/// The same of the whole run: what was written elsewhere is read into the machines here.
void archive_run(Archive& a, Cast& cast, RunState& state);

/// ArchiveError where a machine of `cast` is neither among those that were read nor gone.
void expect_all(const Cast& cast, const RunState& read);

}  // namespace troupe
