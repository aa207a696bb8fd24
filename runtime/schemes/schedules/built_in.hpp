// The schedules that Troupe comes with, one file each (`asynchronous.cpp` has two), named after them.
#pragma once

#include "runtime/schemes/schedules/schedule_scheme.hpp"

#include <cstdint>
#include <vector>

namespace troupe::schedules {

/// As runtime/CMakeLists.txt lists them: each has a function of its name in this namespace.
std::vector<ScheduleScheme> built_in();

/// One mini-batch of 1F1B, for stages of one chunk: what asynchronous pipes begin with, where they are
/// to begin flushed.
void flushed_batch(SequenceBuilder& s, std::int64_t batch);

}  // namespace troupe::schedules
