// Whether a thread may wait by looking again and again.
#pragma once

#include <chrono>
#include <functional>

namespace troupe {

/// About as long as it takes to put a thread to sleep and to wake it, so that looking out costs no more than twice of what would
/// have been best (Karlin et al. 1991).
constexpr std::chrono::microseconds kLookOut{50};

/// Whether of all programs no more threads run, or would, than the machine has processors, this one being one of them. False
/// where the system does not tell, and where this program may not use all of them.
bool processor_is_free();

/// Looks for kLookOut, or until it is there(), as long as a processor is free. No more than a try: true where it is there.
bool look_out(const std::function<bool()>& there);

}  // namespace troupe
