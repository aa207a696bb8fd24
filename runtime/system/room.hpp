// Whether there is room for threads and descriptors that something else will need soon, and would not survive without:
// an actor system ends the program where it cannot have its own.
#pragma once

#include <string>

namespace troupe {

/// Makes `count` threads, which end at once. Throws std::runtime_error, with the limits that may be meant, where they
/// cannot all be there together.
void check_room_for_threads(int count);

/// The same of descriptors.
void check_room_for_descriptors(int count);

/// How much more memory this process can have, and what says so, for people.
struct MemoryRoom {
  double bytes = 0;
  std::string limit;
};

/// The least of what the machine has available, what the control groups of this process leave it, and what its own limits
/// do (`ulimit -v`, `-d`), where `own_limits_count`. What the system does not tell is no limit.
MemoryRoom memory_room(bool own_limits_count = true);

/// As many descriptors as this process may ask for: some systems begin with 1,024 of half a million.
void allow_all_descriptors();

}  // namespace troupe
