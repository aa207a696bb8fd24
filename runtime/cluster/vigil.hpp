// Who has been silent for too long. Who was stopped himself (SIGSTOP, a debugger) has heard nobody meanwhile,
// and those who were stopped with him had nothing to say: silence counts from when he goes on.
#pragma once

#include <algorithm>
#include <chrono>

namespace troupe {

class Vigil {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// From `begin` on.
  Vigil(std::chrono::milliseconds silence_max, Time begin)
      : silence_max_(silence_max), looked_(begin), awake_since_(begin) {}

  /// To be called much more often than silence_max.
  void look(Time now) {
    if (now - looked_ > silence_max_ / 3) {
      awake_since_ = now;
    }
    looked_ = now;
  }

  /// At the last look(): whether somebody who was `heard` last then has been silent for too long.
  bool too_long(Time heard) const { return looked_ - std::max(heard, awake_since_) > silence_max_; }

 private:
  std::chrono::milliseconds silence_max_;
  Time looked_;
  Time awake_since_;
};

}  // namespace troupe
