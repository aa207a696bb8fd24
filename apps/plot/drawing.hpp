// The files of figures: scripts, and what a program draws by them.
#pragma once

#include "apps/plot/figure.hpp"
#include "kernels/result.hpp"

#include <filesystem>
#include <string>
#include <string_view>

namespace troupe {

/// Takes away what draw_figure has written into `folder` for figures whose stems begin with `stem`, so that none stands
/// there for another one's data.
void remove_figures(const std::filesystem::path& folder, std::string_view stem);

/// Writes STEM.gnuplot into `folder` and lets `program` draw it. Error (lost) where the script cannot be written,
/// there is no such program, or it fails, or has drawn no PDF.
Result<void> draw_figure(const std::filesystem::path& folder,
                         const Figure& figure,
                         const std::string& program = "gnuplot");

}  // namespace troupe
