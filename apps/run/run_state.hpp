// How a run stands, from what it has written: it goes on, has told its end, or was killed.
#pragma once

#include <filesystem>

namespace troupe {

/// Whether a process has the file locked, as the one has that writes it (OutputFile). Not where the file system has no locks.
bool is_being_written(const std::filesystem::path& file);

/// Of a run that does not go on: whether its summary.json tells the end of what metrics.jsonl has, and is not of its life before
/// it was resumed. `updates`: that the summary counts; NaN: not known.
/// In folders that were copied the times of the files say nothing, so that it is enough if no line of training is of a later update.
bool tells_the_end(const std::filesystem::path& summary,
                   double updates,
                   const std::filesystem::path& metrics);

}  // namespace troupe
