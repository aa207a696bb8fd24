// What a process answers that was invited to a run, and whether the lead believes it.
#pragma once

#include "kernels/result.hpp"

#include <string>
#include <vector>

namespace troupe::proto {
class Joined;
}  // namespace troupe::proto

namespace troupe {

/// Whom the lead has asked, and for what.
struct Asked {
  std::vector<int> partners{};  // it must name a socket for each of these processes
  std::string name{};           // "process 1 on beta:7000"
  std::string version{};        // of the program, and of this end
  std::string cast{};           // what it must have made of the experiment
  bool on_hosts = false;        // its channels are TCP's
  std::string instructions{};   // by which its CPU kernels must compute; empty: by any
};

/// Error, of the kind that the process tells, where it cannot take part; (lost) where it is of another version, makes
/// another cast, tells a kind that is none, or names sockets or a key that are none; (usage) where its instructions are others.
Result<void> check_answer(const proto::Joined& joined, const Asked& asked);

}  // namespace troupe
