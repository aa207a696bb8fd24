// A process of a run that the lead has started: how it is started, and the talk over the descriptor that it
// has inherited (messages/wire.proto), by which either end also knows at once that the other is gone.
#pragma once

#include "kernels/result.hpp"
#include "messages/proto.hpp"

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>

namespace troupe {

/// Where the started process finds its end.
constexpr int kInherited = 3;

struct StartedProcess {
  pid_t pid = -1;
  int descriptor = -1;  // the lead's end
};

/// Runs `program` with the word "node" in a process group of its own, so that Ctrl-C does not reach it, and with
/// the signals of an interrupt held back (mind_the_lead_alone()). Error (lost) where that fails.
Result<StartedProcess> start_process(const std::string& program);

/// Whatever has been started is gone when this returns: how it ended, in words ("was killed by signal 9").
std::string end_process(const StartedProcess& process);

/// Waits for what has started to end by itself, at most `seconds`; then ends it.
void await_process(const StartedProcess& process, double seconds);

/// To be called first in a process that was started: it ends when the thread that has started it does. What is
/// sent to whole groups of processes (INT, TERM, HUP) is the lead's to heed, which decides what becomes of the
/// run.
void mind_the_lead_alone();

/// 128 random bits, as 32 hexadecimal digits.
std::string make_token();

/// How long somebody waits for the other end of a descriptor.
struct Patience {
  std::chrono::steady_clock::time_point until = std::chrono::steady_clock::time_point::max();
  std::function<bool()> given_up{};  // asked ten times a second; empty: never
};

enum class Talk {
  done,
  gone,      // the other end, or what has come is not such a message
  late,      // the other end has not answered, or not listened, in time
  given_up,  // the user has
};

Talk write_message(int descriptor,
                   const google::protobuf::Message& message,
                   const Patience& patience = {});
Talk read_message(int descriptor,
                  google::protobuf::Message& message,
                  const Patience& patience = {});

/// Returns when the other end says no more, or is gone.
void await_silence(int descriptor);

}  // namespace troupe
