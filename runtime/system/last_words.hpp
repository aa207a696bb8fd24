// What a program says that cannot go on: where memory has run out, where an exception has got out of a thread, and where a
// library ends the program. Somewhere in the midst of anything there is nothing that could be undone; what can be done is to
// say so, with an exit code that is documented, instead of a wait for what will never come.
#pragma once

namespace troupe {

/// From now on this program, which has no other use for them, ends in a sentence on stderr and with exit code 5 where
/// operator new finds no memory, std::terminate is called, a library calls abort(), or, under a limit of memory, reads
/// where there is none. For a program's main() alone: a
/// library has no business with these handlers.
void install_last_words();

/// While one lives, operator new throws std::bad_alloc in this thread all the same: what lacks memory here is something
/// that the program can do without.
class MayLackMemory {
 public:
  MayLackMemory();
  ~MayLackMemory();
  MayLackMemory(const MayLackMemory&) = delete;
  MayLackMemory& operator=(const MayLackMemory&) = delete;
};

}  // namespace troupe
