// A process of a run that the lead has started: how it is started, and the talk over the descriptor that it
// has inherited (messages/wire.proto), by which either end also knows at once that the other is gone.
#pragma once

#include "kernels/result.hpp"
#include "messages/proto.hpp"

#include <sys/types.h>

#include <string>

namespace troupe {

/// Where the started process finds its end.
constexpr int kInherited = 3;

struct StartedProcess {
  pid_t pid = -1;
  int descriptor = -1;  // the lead's end
};

/// Runs `program` with the word "node" in a process group of its own, so that Ctrl-C does not reach it.
/// It ends when the thread that has called this does. Error (lost) where that fails.
Result<StartedProcess> start_process(const std::string& program);

/// Whatever has been started is gone when this returns: how it ended, in words ("was killed by signal 9").
std::string end_process(const StartedProcess& process);

/// Waits for what has started to end by itself, at most `seconds`; then ends it.
void await_process(const StartedProcess& process, double seconds);

/// To be called first in a process that was started: it ends when the lead's thread does.
void end_with_the_lead();

/// 128 random bits.
std::string make_token();

/// False where the other end is gone.
bool write_message(int descriptor, const google::protobuf::Message& message);
/// False where the other end is gone, or what has come is not such a message.
bool read_message(int descriptor, google::protobuf::Message& message);

}  // namespace troupe
