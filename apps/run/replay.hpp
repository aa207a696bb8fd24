// A run that `troupe run --out DIR` has recorded, once more, and whether it comes to the same.
#pragma once

#include "apps/run/run.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

struct ReplayOptions {
  std::optional<std::filesystem::path> out;  // the replay's own files: as RunOptions::directory
  std::ostream* progress = nullptr;          // as in RunOptions, these three
  bool terminal = false;
  std::function<int()> interrupts{};
  std::function<void(Cast&)> recast{};
};

struct Replayed {
  std::uint64_t deliveries = 0;  // of all phases
  std::size_t threads = 0;
  bool interrupted = false;  // by the user, before its end
  /// What has not come out as recorded, a sentence each; empty where all is equal. After a departure there
  /// is nothing else to be told.
  std::vector<std::string> differences{};
  Summary summary;  // of the last phase
};

/// Replays the run in `folder`, of all its phases where it has some. Error (usage or data) where there is no
/// record of a whole run that this program can follow, or as run_experiment().
Result<Replayed> replay(const std::filesystem::path& folder, const ReplayOptions& options);

}  // namespace troupe
