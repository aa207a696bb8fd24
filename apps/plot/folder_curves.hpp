// The curves of runs and comparisons that are over, or still go on, read from their folders.
#pragma once

#include "apps/compare/statistics.hpp"
#include "kernels/result.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace troupe {

/// One line of a figure.
struct FolderCurve {
  std::string title;
  std::string clock{};              // "real" or "virtual"
  std::vector<Trial> trials{};      // one a seed: finished, and nothing of them but their curves
  std::vector<MeanPoint> losses{};  // of the training, where they are finer than the trials' curves
};

/// Of a run's folder one curve, with the folder's name as its title; of a comparison's one a scheme. Error (usage) where
/// the folder is neither, (data) with file and line where a file is malformed. A last line that is still being
/// written is left out.
Result<std::vector<FolderCurve>> curves_in(const std::filesystem::path& folder);

}  // namespace troupe
