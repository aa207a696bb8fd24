// The schedules that Troupe comes with, one file each (`asynchronous.cpp` has two), named after them.
// `schedule_scheme.cpp` lists them.
#pragma once

#include "runtime/schemes/schedule_scheme.hpp"

#include <cstdint>

namespace troupe::schedules {

ScheduleScheme sequential();
ScheduleScheme gpipe();
ScheduleScheme one_f_one_b();
ScheduleScheme interleaved();
ScheduleScheme zb_h1();
ScheduleScheme async_one_f_one_b();
ScheduleScheme async_full_duplex();

/// One mini-batch of 1F1B, for stages of one chunk: what asynchronous pipes begin with, where they are
/// to begin flushed.
void flushed_batch(SequenceBuilder& s, std::int64_t batch);

}  // namespace troupe::schedules
