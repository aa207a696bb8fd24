// A traced run as a file of Perfetto's (https://ui.perfetto.dev), and the sums of what stands in one.
#pragma once

#include "kernels/result.hpp"
#include "runtime/record/trace_timeline.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace troupe {

/// What TracePackets of messages/perfetto.proto say of the tracks; `actors`: their names, by ActorId. Error (lost) where the file
/// cannot be written; then nothing is left of it.
Result<void> write_trace(const std::filesystem::path& path,
                         const std::vector<TraceTrack>& tracks,
                         const std::vector<TracedRun::Actor>& actors);

/// Where the time of a run's actors went.
struct TraceLedger {
  struct Row {
    std::string process;
    std::string actor;
    std::array<std::int64_t, kSpent.size()> spent{};  // nanoseconds
    std::int64_t bytes = 0;  // of tensors that it has sent to other stages, replicas and servers
  };

  std::int64_t nanoseconds = 0;  // of the run, as far as it was recorded
  std::int64_t slices = 0;
  std::int64_t flows = 0;
  std::vector<Row> rows;  // an actor each
};

/// Error (data) where the file is none that write_trace has written.
Result<TraceLedger> read_ledger(const std::filesystem::path& path);

}  // namespace troupe
