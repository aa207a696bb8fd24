// What it takes to hand a message over from one stage's thread to another's.
#pragma once

#include <cstdint>

namespace troupe {

enum class Handover : std::uint8_t {
  streamed,  // many are sent ahead, and nobody waits
  awaited,  // each waits for the other's message and does nothing else, so that one thread takes both their turns
  between_jobs,  // each has a job to do when it has sent one, as a stage has: the other's turn is another thread's, that is woken
};

/// Seconds of a message between two machines that have a thread each, as stages have. `messages`, a multiple of 64: how many are
/// measured. On the wall clock, so that what other programs take of the cores is in it.
double handover(std::int64_t messages, Handover how);

}  // namespace troupe
