// Figures as gnuplot scripts: panels side by side, and below them one legend for all.
#pragma once

#include <string>
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

struct Figure {
  std::string stem;   // its files: STEM.gnuplot, and what that draws
  std::string title;  // "": none
  std::vector<PlotPanel> panels{};
};

/// A script, data included, that draws STEM.svg, STEM.png and STEM.pdf (the last one where gnuplot can). Up to 28 lines
/// differ in colour or dashes. Of titles that are longer than 120 bytes the middle is left out. "" where no panel has
/// a point.
std::string figure_script(const Figure& figure);

}  // namespace troupe
