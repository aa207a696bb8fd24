// What a process tells the lead, which has the recorder and writes down the order of deliveries.
#pragma once

#include "runtime/system/theatre.hpp"

#include <span>
#include <vector>

namespace troupe {

/// Each delivery stands with what was recorded in it, and behind all that it follows from: whatever part of these the lead
/// has when the process is killed, it lacks nothing that the rest follows from, and nothing is counted that was not
/// delivered.
void archive_batches(Archive& a, std::span<RecordBatch> batches);

/// The same read. ArchiveError.
std::vector<RecordBatch> read_batches(Archive& a);

}  // namespace troupe
