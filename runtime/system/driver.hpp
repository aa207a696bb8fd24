// What the two drivers of a cast, the Agenda and the threads, have in common.
#pragma once

#include "runtime/system/machine.hpp"
#include "runtime/system/time_model.hpp"

#include <atomic>
#include <functional>
#include <optional>
#include <set>

namespace troupe {

/// Receives every record, in an order that keeps each sender's own. Called from one thread.
class RecordSink {
 public:
  virtual ~RecordSink() = default;
  /// Something that the Director has to hear, or nothing.
  virtual std::optional<Diverged> on(const RecordEntry& entry, double now) = 0;
};

/// What the Director has to hear of a loss; nothing where it is finite.
std::optional<Diverged> divergence_of(const Stamp& stamp, double loss);

/// One delivery, without what the message carries.
struct Delivered {
  double now = 0;  // seconds of the run's clock
  ActorId to = 0;
  ActorId from = kOutside;
  std::uint16_t message = 0;  // its index in Message
  Stamp stamp{};
};

Delivered delivered_of(double now, ActorId to, const Message& message);

/// Receives every delivery. On threads each thread has its own.
class OrderSink {
 public:
  virtual ~OrderSink() = default;

  void delivered(double now, ActorId to, const Message& message) {
    note(delivered_of(now, to, message));
  }

  virtual void note(const Delivered& made) = 0;
};

/// "forward", "update", ...
const char* to_string(Work work);

/// Runs a job on `stream`: the message that its machine gets.
Message run_job(Run& run, Stream& stream);

/// What a machine says of itself when its run has stalled.
struct Standstill {
  std::string waits_for{};
  Remains remains{};
  bool gone = false;  // an exception has ended it; the rest is empty
};

Standstill standstill_of(const Machine& machine);
/// By ActorId. Of machines that play in another process nothing is known: they are gone, as those of `gone` are.
std::vector<Standstill> standstills_of(const Cast& cast, const std::set<ActorId>& gone);

/// A run whose machines stand still between two turns.
struct StandingRun {
  /// Writes it. ArchiveError where a machine cannot be written.
  std::function<void(Archive&)> archive;
  /// What every machine says of itself, by ActorId; one whose process does not answer is gone.
  std::function<std::vector<Standstill>()> explain;
};

/// How a run ends that has stalled: with what every machine waits for, in one sentence, and with what
/// they have of the model: of what is everybody's (servers) where there is such, else of the first
/// replica that has something and is whole. Chunks may stand at different steps, and some may be missing. `told`:
/// by ActorId.
Ending stalled(const Cast& cast, std::vector<Standstill> told);

}  // namespace troupe
