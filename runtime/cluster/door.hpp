// The door of a node that listens: each visitor is talked to in a process of its own, so that nothing that one sends
// reaches another or this one. Who has shown that he is the lead of a run takes the seat; there is one. Strangers
// are few at a time, and have little time.
#pragma once

#include "kernels/result.hpp"

#include <chrono>
#include <functional>
#include <iosfwd>
#include <string>

namespace troupe {

/// What a visitor's process has of the door.
class Seat {
 public:
  /// Of a node that has none yet. Throws std::system_error.
  Seat();
  ~Seat();
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  /// False where another process has it, and keeps it for a moment: that of a run that is over may still be
  /// ending. It is free again when the one that has taken it ends, however it does.
  bool take() const;
  /// The process that has it, or 0.
  int taken_by() const;

 private:
  int file_;  // whose lock it is
};

struct Visit {
  int socket = -1;                              // the callee's
  std::string who;                              // "10.0.0.3:4711"
  std::chrono::steady_clock::time_point until;  // when a stranger must have shown who he is
};

/// What receive() is told to do.
struct Door {
  int listening = -1;  // a socket
  bool once = false;   // ends with the first run
  std::size_t strangers_max = 8;
  std::chrono::milliseconds stranger{10'000};  // what he has to show who he is
  /// Plays a visitor's run, in a process of its own; its exit code. kTurnedAway where it was none, kMayBeginAgain where the
  /// visitor may come again with it.
  std::function<int(const Visit&, const Seat&)> play;
};

constexpr int kTurnedAway = 64;
constexpr int kMayBeginAgain = 65;

/// Tells on `told` how each run has ended. Returns after the first where `once`: its exit code; else never.
int receive(const Door& door, std::ostream& told);

}  // namespace troupe
