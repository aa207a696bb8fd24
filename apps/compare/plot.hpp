// The curves of a comparison, drawn by gnuplot.
#pragma once

#include "apps/compare/report.hpp"

#include <filesystem>
#include <string>

namespace troupe {

inline constexpr const char* kPlotScript = "curves.gnuplot";

/// A script that draws curves.svg and curves.png, data included: the measure over epochs and over
/// seconds of the clock, one line a scheme, and around it the standard deviation over the seeds.
/// "" where nothing was evaluated.
std::string plot_script(const Comparison& comparison);

/// Runs the script that stands in `folder`. `program`: gnuplot by another name. Error (lost) where
/// there is no such program, or it fails.
Result<void> draw(const std::filesystem::path& folder, const std::string& program = "gnuplot");

}  // namespace troupe
