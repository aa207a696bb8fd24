// What it takes to hand a message over from one stage's thread to another's.
#pragma once

#include <cstdint>

namespace troupe {

/// Seconds of a message between two machines that have a thread each, as stages have. window 0: each waits for the other's
/// message, and its thread sleeps until it comes. Else one sends so many ahead, and nobody waits. `messages`, a multiple of
/// 64: how many are measured. On the wall clock, so that what other programs take of the cores is in it.
double handover(std::int64_t messages, std::int64_t window);

}  // namespace troupe
