// A process that the lead of a run has started, on this machine or through ssh, and its end.
#pragma once

#include "kernels/result.hpp"
#include "runtime/cluster/control_stream.hpp"

#include <sys/types.h>

#include <memory>
#include <string>

namespace troupe {

/// Where the started process finds its end.
constexpr int kInherited = 3;

struct StartedProcess {
  pid_t pid = -1;
  std::unique_ptr<ControlStream> stream{};  // the lead's end
};

/// Runs `program` with the word "node" in a process group of its own, so that Ctrl-C does not reach it, and with
/// the signals of an interrupt held back (mind_the_lead_alone()). Error (lost) where that fails.
Result<StartedProcess> start_process(const std::string& program);

/// Runs `program node --stdio` on `host` by the ssh that is on the PATH, which must get in without asking for a
/// password. Its standard input and output are the stream there. What ssh has to complain of it writes to stderr.
Result<StartedProcess> start_over_ssh(const std::string& host, const std::string& program);

/// "was killed by signal 9 (Killed)", "ended with exit code 1", of what waitpid() has told.
std::string words_of_end(int status);

/// Whatever has been started is gone when this returns: how it ended, in words. It may end by itself within `seconds`.
std::string end_process(pid_t pid, double seconds = 0);

/// To be called first in a process whose starter the run belongs to: it ends when the thread that has started it does.
void end_with_the_starter();

/// What is sent to whole groups of processes (INT, TERM, HUP) is the lead's to heed, which decides what becomes of the
/// run.
void mind_the_lead_alone();

/// As long as there is no lead: the same signals end the process.
void mind_signals();

/// 128 random bits, as 32 hexadecimal digits.
std::string make_token();

}  // namespace troupe
