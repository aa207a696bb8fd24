// The numbers beside the axes of figures, as gnuplot sets them.
#include "apps/plot/drawing.hpp"
#include "kernels/check.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"

#include <cmath>
#include <cstdlib>
#include <regex>

namespace figure_axes_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// A number beside an axis of an SVG, in its pixels.
struct Tick {
  std::string text;
  double left = 0;
  double right = 0;
  double base = 0;  // grows downwards
  double height = 0;

  bool meets(const Tick& other) const {
    return left < other.right && other.left < right && std::abs(base - other.base) < height;
  }
};

/// The texts of an SVG of gnuplot's that are numbers.
std::vector<Tick> ticks_of(const std::string& svg) {
  constexpr double kDigit = 0.636;  // of the font's size, in DejaVu Sans, which is wide
  const std::regex of_text(
      R"re(translate\(([-.\d]+),([-.\d]+)\)" [^>]*font-size="([.\d]+)"\s+text-anchor="(\w+)">\s*<text>(?:<!\[CDATA\[)?\s*([-+.\de]+)[\]<])re");
  std::vector<Tick> ticks;
  for (std::sregex_iterator at(svg.begin(), svg.end(), of_text), end; at != end; ++at) {
    const double font = std::stod((*at)[3]);
    const double width = kDigit * font * static_cast<double>((*at)[5].length());
    const double from = (*at)[4] == "end" ? 1 : (*at)[4] == "middle" ? 0.5 : 0;
    const double left = std::stod((*at)[1]) - from * width;
    ticks.push_back({(*at)[5], left, left + width, std::stod((*at)[2]), font});
  }
  return ticks;
}

}  // namespace

TEST_CASE("no two numbers beside the axes of a drawn figure overlap", "[apps]") {
  if (std::system("gnuplot --version > /dev/null 2>&1") != 0) {
    return;
  }
  const Folder folder;
  const auto scaled = [](double low, double high) {
    PlotLine line{.title = concat(low, " to ", high)};
    for (int i = 0; i < 5; ++i) {
      const double value = low + (high - low) * i / 4;
      line.points.push_back({value, value});
    }
    return line;
  };
  std::size_t drawn = 0;
  for (const FigureSize size : {FigureSize::screen, FigureSize::page, FigureSize::column}) {
    Figure figure{
        .stem = concat("size-", static_cast<int>(size)), .title = "", .panels = {}, .size = size};
    for (const auto& [low, high] : {std::pair{0.0, 0.0436},
                                    {0.00123456, 0.00198765},
                                    {123456.0, 9876543.0},
                                    {1.7812, 1.7981},
                                    {0.001, 0.9},
                                    {1e-9, 1e25}}) {
      for (const bool log : {false, true}) {
        figure.panels.push_back({.x_label = "x",
                                 .y_label = "y",
                                 .lines = {scaled(low, high)},
                                 .log_x = log,
                                 .log_y = log});
      }
    }
    figure.panels.push_back({.x_label = "x",
                             .y_label = "y",
                             .lines = {{"at points", {{1000, 1}, {1001, 2}, {1010, 3}, {1500, 4}}}},
                             .ticks_at_points = true});
    REQUIRE(draw_figure(folder.path(), figure));
    const auto ticks = ticks_of(contents(folder / (figure.stem + ".svg")));
    drawn += ticks.size();
    for (std::size_t a = 0; a < ticks.size(); ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        INFO(figure.stem << ": " << ticks[a].text << " and " << ticks[b].text);
        CHECK_FALSE(ticks[a].meets(ticks[b]));
      }
    }
  }
  CHECK(drawn > 3 * 13 * 2 * 2);  // two numbers at least at each axis
}

}  // namespace figure_axes_test
