// Figures as gnuplot scripts: panels side by side, and below them one legend for all.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

struct PlotPoint {
  double x = 0;
  double y = 0;
  double deviation = 0;  // half the height of the band; NaN or 0: none
};

struct PlotLine {
  std::string title;
  std::vector<PlotPoint> points{};  // those that are not finite are left out
};

struct PlotPanel {
  std::string x_label;
  std::string y_label;
  std::vector<PlotLine> lines{};  // a line has the same place in every panel
  bool log_x = false;             // where all x are positive
  bool log_y = false;  // where all y are positive, and the largest is several times the smallest
  bool ticks_at_points = false;  // of x, where they are few
};

enum class FigureSize : std::uint8_t {
  screen,  // panels side by side, each 5.2 inches wide, and as wide as the legend asks for
  page,    // 7 inches wide: two panels in a row
  column,  // 3.4 inches wide, a panel in a row: of a paper with two columns
};

struct Figure {
  std::string stem;   // its files: STEM.gnuplot, and what that draws
  std::string title;  // "": none
  std::vector<PlotPanel> panels{};
  FigureSize size = FigureSize::screen;
};

/// In the order of FigureSize, as a command line names them.
inline constexpr std::array kFigureSizes{"screen", "page", "column"};

/// Of one of kFigureSizes.
FigureSize figure_size_of(std::string_view name);

/// A script, data included, that draws STEM.svg, STEM.png and STEM.pdf (the last one where gnuplot can). Up to 28 lines
/// differ in colour or dashes. Of titles that are longer than 120 bytes, or than the figure is wide, the middle is left
/// out. Ticks are so far apart that no two numbers of an axis overlap. A line of one point is a mark with a bar of its
/// deviation. "" where no panel has a point.
std::string figure_script(const Figure& figure);

}  // namespace troupe
