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
  std::string title{};              // no other curve has it
  std::string folder{};             // as it was named
  bool of_comparison = false;       // a scheme; else a run, or a phase of one
  std::string clock{};              // "real" or "virtual"; "" of a run that has not begun yet
  std::vector<Trial> trials{};      // one a seed: finished, and nothing of them but their curves
  std::vector<MeanPoint> losses{};  // of the training, where they are finer than the trials' curves
};

/// Of a run's folder one curve, with the folder's name as its title, or one a phase, "RUN/01-PHASE"; of a comparison's one
/// a scheme. Error (usage) where a folder is neither, or is named twice, (data) with file and line where a file is
/// malformed, or without a curve that could be drawn. A last line that is still being written is left out.
Result<std::vector<FolderCurve>> curves_in(const std::vector<std::string>& folders);

}  // namespace troupe
