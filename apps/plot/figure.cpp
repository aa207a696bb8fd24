#include "apps/plot/figure.hpp"

#include "apps/plot/ticks.hpp"
#include "kernels/check.hpp"
#include "kernels/wording.hpp"
#include "runtime/record/json.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <set>

namespace troupe {
namespace {

// Okabe and Ito's colours without the yellow: told apart by everybody, also in print.
constexpr std::array kColours{
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"};
// gnuplot's dash types, but dots, which are faint. Their number and that of the colours have no common divisor. A line
// over another one of the same values lets it be seen.
constexpr std::array kDashes{1, 2, 4, 5};

// Of the size `screen`, in pixels; the others have smaller letters, and all that goes with them.
constexpr std::size_t kFont = 14;
constexpr std::size_t kLeft = 80;  // of a panel, for its labels
constexpr std::size_t kRight = 25;
constexpr std::size_t kBelow = 62;
constexpr std::size_t kTitle = 40;
constexpr std::size_t kAbove = 15;     // of a panel without a title
constexpr std::size_t kKeyWidth = 70;  // without its text
constexpr std::size_t kLetterWidth = 9;
constexpr std::size_t kLineHeight = 21;
constexpr double kPixelsAnInch = 100;
constexpr double kWorthALogarithm = 4;  // the largest value, in smallest ones
constexpr std::size_t kTicksMax = 12;
constexpr std::size_t kLettersMax = 120;  // of a title, in bytes

/// `text`, the middle left out of one that is longer than the width of a figure. No letter of UTF-8 is cut.
std::string bounded(const std::string& text, std::size_t letters) {
  if (text.size() <= letters) {
    return text;
  }
  const auto in_a_letter = [&](std::size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xc0U) == 0x80U;
  };
  std::size_t end = letters / 2;
  while (end > 0 && in_a_letter(end)) {
    --end;
  }
  std::size_t begin = text.size() - letters / 2;
  while (begin < text.size() && in_a_letter(begin)) {
    ++begin;
  }
  return text.substr(0, end) + " ... " + text.substr(begin);
}

/// Between single quotes, for gnuplot, which would take what follows the end of a line for a command.
std::string in_quotes(const std::string& text, std::size_t letters = kLettersMax) {
  std::string out = "'";
  for (const char c : bounded(text, letters)) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    out += c == '\'' ? "''" : std::string(1, control ? ' ' : c);
  }
  return out + "'";
}

bool is_drawn(const PlotPoint& point) {
  return std::isfinite(point.x) && std::isfinite(point.y);
}

/// All that `get` says of the points that are drawn.
template <class Get>
std::set<double> values_of(const PlotPanel& panel, const Get& get) {
  std::set<double> values;
  for (const PlotLine& line : panel.lines) {
    for (const PlotPoint& point : line.points) {
      if (is_drawn(point)) {
        values.insert(get(point));
      }
    }
  }
  return values;
}

double x_of(const PlotPoint& point) {
  return point.x;
}

double y_of(const PlotPoint& point) {
  return point.y;
}

bool spans_enough(const std::set<double>& values) {
  return !values.empty() && *values.begin() > 0 &&
         *values.rbegin() >= kWorthALogarithm * *values.begin();
}

/// Lines of "x y low high".
std::string data_block(const std::string& name, const PlotLine& line, bool log_y) {
  std::string text = concat(name, " << EOD\n");
  for (const PlotPoint& point : line.points) {
    if (!is_drawn(point)) {
      continue;
    }
    const double deviation = std::isfinite(point.deviation) ? point.deviation : 0;
    const double low = point.y - deviation;
    text += concat(json_number(point.x),
                   ' ',
                   json_number(point.y),
                   ' ',
                   json_number(log_y && low <= 0 ? point.y : low),  // what no logarithm can show
                   ' ',
                   json_number(point.y + deviation),
                   '\n');
  }
  return text + "EOD\n";
}

std::string name_of_data(std::size_t panel, std::size_t line) {
  return concat("$panel", panel, "_line", line);
}

std::string style_of(std::size_t line, bool few) {
  return fill_in("with linespoints lw 2 pt {} ps 0.5 dt {} lc rgb '{}'",
                 few ? 7 : 0,
                 kDashes[line % kDashes.size()],
                 kColours[line % kColours.size()]);
}

bool has_points(const PlotLine& line) {
  return std::any_of(line.points.begin(), line.points.end(), is_drawn);
}

/// One point: a mark, with a bar in place of a band.
bool is_mark(const PlotLine& line) {
  return std::count_if(line.points.begin(), line.points.end(), is_drawn) == 1;
}

bool has_band(const PlotLine& line) {
  return !is_mark(line) &&
         std::any_of(line.points.begin(), line.points.end(), [](const PlotPoint& point) {
           return is_drawn(point) && point.deviation > 0;
         });
}

/// Bands first, so that no line is hidden.
std::string plot_command(const PlotPanel& panel, std::size_t index) {
  constexpr std::size_t kFew = 60;  // points, which are worth a mark each
  std::string text;
  const auto add = [&](const std::string& one) {
    text += (text.empty() ? "plot " : ", \\\n     ") + one;
  };
  for (std::size_t i = 0; i < panel.lines.size(); ++i) {
    if (has_band(panel.lines[i])) {
      add(
          fill_in("{} using 1:3:4 with filledcurves fillstyle transparent solid 0.15 noborder lc "
                  "rgb '{}' notitle",
                  name_of_data(index, i),
                  kColours[i % kColours.size()]));
    }
  }
  for (std::size_t i = 0; i < panel.lines.size(); ++i) {
    if (has_points(panel.lines[i])) {
      add(fill_in("{} using 1:2 {} notitle",
                  name_of_data(index, i),
                  style_of(i, panel.lines[i].points.size() <= kFew)));
    }
    if (is_mark(panel.lines[i])) {
      add(fill_in("{} using 1:2:3:4 with yerrorbars lw 1 pt 0 dt 1 lc rgb '{}' notitle",
                  name_of_data(index, i),
                  kColours[i % kColours.size()]));
    }
  }
  return text + "\n";
}

/// Sizes in pixels.
struct Layout {
  std::size_t font = kFont;
  std::size_t panels_a_row = 1;
  std::size_t panel_rows = 1;
  std::size_t panel_width = 0;  // labels included
  std::size_t panel_height = 0;
  std::size_t columns = 1;  // of the legend
  std::size_t rows = 0;
  std::size_t letters = kLettersMax;  // that there is room for in a line of the legend
  std::size_t head = 0;
  std::size_t width = 0;
  std::size_t height = 0;

  std::size_t scaled(std::size_t pixels) const { return pixels * font / kFont; }

  std::size_t legend() const { return scaled(kLineHeight) * rows; }

  /// The lower edge of the axes of a panel, from below.
  std::size_t bottom(std::size_t panel) const {
    const std::size_t rows_below = panel_rows - 1 - panel / panels_a_row;
    return legend() + scaled(kBelow) +
           rows_below * (panel_height + scaled(kBelow) + scaled(kAbove));
  }

  double x(std::size_t pixels) const {
    return static_cast<double>(pixels) / static_cast<double>(width);
  }

  double y(std::size_t pixels) const {  // from below
    return static_cast<double>(pixels) / static_cast<double>(height);
  }
};

Layout layout_of(const std::vector<PlotPanel>& panels, const Figure& figure) {
  const std::size_t count = panels.size();
  Layout layout;
  switch (figure.size) {
    case FigureSize::screen:
      layout = {.panels_a_row = count, .panel_width = 520, .panel_height = 420};
      break;
    case FigureSize::page:
      layout = {.font = 10,
                .panels_a_row = std::min<std::size_t>(count, 2),
                .panel_width = count > 1 ? std::size_t{350} : std::size_t{700},
                .panel_height = 250};
      break;
    case FigureSize::column:
      layout = {.font = 10, .panel_width = 340, .panel_height = 220};
      break;
  }
  layout.panel_rows = (count + layout.panels_a_row - 1) / layout.panels_a_row;
  layout.width = layout.panel_width * layout.panels_a_row;
  const std::size_t letter = layout.scaled(kLetterWidth);
  const std::size_t key = layout.scaled(kKeyWidth);
  if (figure.size != FigureSize::screen) {
    layout.letters = std::min(kLettersMax, (layout.width - key - 20) / letter);
  }
  std::size_t longest = 0;
  std::size_t entries = 0;
  for (const PlotLine& line : panels.front().lines) {
    longest = std::max(longest, bounded(line.title, layout.letters).size());
    entries += line.title.empty() ? 0 : 1;
  }
  const std::size_t entry = key + letter * longest;
  if (figure.size == FigureSize::screen) {
    layout.width = std::max(layout.width, entry + 20);
  }
  layout.columns = std::max<std::size_t>(1, std::min(entries, layout.width / entry));
  layout.rows = (entries + layout.columns - 1) / layout.columns;
  layout.head = layout.scaled(figure.title.empty() ? kAbove : kTitle);
  layout.height = layout.bottom(0) + layout.panel_height + layout.head;
  return layout;
}

/// Everything of a panel but its data, which every terminal shares.
std::string panel_text(const PlotPanel& panel, std::size_t index, const Layout& layout) {
  const std::size_t share = layout.width / layout.panels_a_row;
  const std::size_t column = index % layout.panels_a_row;
  const auto xs = values_of(panel, x_of);
  const auto ys = values_of(panel, y_of);
  const std::size_t left = share * column + layout.scaled(kLeft);
  const std::size_t right = share * (column + 1) - layout.scaled(kRight);
  const auto letter = static_cast<double>(layout.scaled(kLetterWidth));
  const Axis across{static_cast<double>(right - left), letter, letter};
  const Axis upright{
      static_cast<double>(layout.panel_height), 0, static_cast<double>(layout.scaled(kLineHeight))};
  const bool log_x = panel.log_x && spans_enough(xs);
  std::string text = fill_in(
      "set lmargin at screen {}\nset rmargin at screen {}\nset bmargin at screen {}\nset tmargin "
      "at screen {}\nset xlabel {}\nset ylabel {}\nunset logscale\nset xrange [*:*]\nset xtics "
      "{}\nset ytics {}\n",
      layout.x(left),
      layout.x(right),
      layout.y(layout.bottom(index)),
      layout.y(layout.bottom(index) + layout.panel_height),
      in_quotes(panel.x_label),
      in_quotes(panel.y_label),
      panel.ticks_at_points && xs.size() > 1 && xs.size() <= kTicksMax ? ticks_at(xs, log_x, across)
      : log_x ? log_ticks(*xs.begin(), *xs.rbegin(), across)
              : linear_ticks(*xs.begin(), *xs.rbegin(), across),
      panel.log_y && spans_enough(ys) ? log_ticks(*ys.begin(), *ys.rbegin(), upright)
                                      : std::string("autofreq"));
  text += log_x ? "set logscale x\n" : "";
  text += panel.log_y && spans_enough(ys) ? "set logscale y\n" : "";
  return text + plot_command(panel, index);
}

/// One for all panels, in a strip below them.
std::string legend_text(const std::vector<PlotLine>& lines, const Layout& layout) {
  std::string plot;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!lines[i].title.empty()) {
      plot += fill_in("{}NaN {} title {}",
                      plot.empty() ? "plot " : ", \\\n     ",
                      style_of(i, true),
                      in_quotes(lines[i].title, layout.letters));
    }
  }
  if (plot.empty()) {
    return "";
  }
  return fill_in(
      "unset logscale\nunset border\nunset tics\nunset xlabel\nunset ylabel\nunset grid\nset "
      "lmargin at screen 0\nset rmargin at screen 1\nset bmargin at screen 0\nset tmargin at "
      "screen {}\nset xrange [0:1]\nset yrange [0:1]\nset key at graph 0.5, graph 1 center top "
      "horizontal Left reverse samplen 3 maxcols {} width 1\n{}\n",
      layout.y(layout.legend() + layout.scaled(8)),
      layout.columns,
      plot);
}

std::string drawing_text(const Figure& figure,
                         const std::vector<PlotPanel>& panels,
                         const Layout& layout) {
  std::string text = "reset\nset key off\nset grid back lt 1 lc rgb '#d8d8d8'\n";
  // Letters are narrower than numbers.
  const std::size_t letters = figure.size == FigureSize::screen
                                  ? kLettersMax
                                  : std::min(kLettersMax, layout.width / layout.scaled(8));
  text += figure.title.empty()
              ? "set multiplot\n"
              : concat("set multiplot title ", in_quotes(figure.title, letters), "\n");
  for (std::size_t i = 0; i < panels.size(); ++i) {
    text += panel_text(panels[i], i, layout);
  }
  return text + legend_text(panels.front().lines, layout) + "unset multiplot\nunset output\n";
}

}  // namespace

FigureSize figure_size_of(std::string_view name) {
  const auto* const at = std::find(kFigureSizes.begin(), kFigureSizes.end(), name);
  TROUPE_CHECK(at != kFigureSizes.end(), "[figure_size_of] a size of kFigureSizes");
  return static_cast<FigureSize>(at - kFigureSizes.begin());
}

std::string figure_script(const Figure& figure) {
  std::vector<PlotPanel> panels;  // those with something to show
  std::copy_if(figure.panels.begin(),
               figure.panels.end(),
               std::back_inserter(panels),
               [](const PlotPanel& panel) {
                 return std::any_of(panel.lines.begin(), panel.lines.end(), has_points);
               });
  if (panels.empty()) {
    return "";
  }
  const Layout layout = layout_of(panels, figure);
  const std::string size = concat(" size ", layout.width, ",", layout.height);
  const std::string inches = fill_in(" size {}in,{}in",
                                     static_cast<double>(layout.width) / kPixelsAnInch,
                                     static_cast<double>(layout.height) / kPixelsAnInch);
  const std::string& stem = figure.stem;
  std::string text = fill_in(
      "# Drawn by troupe. In this folder, `gnuplot {}.gnuplot` draws {}.svg, .png and .pdf "
      "again.\n# A point: x, y, y - deviation, y + deviation.\n",
      stem,
      stem);
  for (std::size_t p = 0; p < panels.size(); ++p) {
    const bool log_y = panels[p].log_y && spans_enough(values_of(panels[p], y_of));
    for (std::size_t i = 0; i < panels[p].lines.size(); ++i) {
      if (has_points(panels[p].lines[i])) {
        text += data_block(name_of_data(p, i), panels[p].lines[i], log_y);
      }
    }
  }
  const std::string drawing = drawing_text(figure, panels, layout);
  return concat(text,
                "set terminal svg noenhanced",
                size,
                fill_in(" background rgb 'white' font 'sans,{}'\nset output ", layout.font),
                in_quotes(stem + ".svg"),
                "\n",
                drawing,
                "set terminal pngcairo noenhanced",
                size,
                fill_in(" font 'sans,{}'\nset output ", layout.scaled(11)),
                in_quotes(stem + ".png"),
                "\n",
                drawing,
                "if (strstrt(GPVAL_TERMINALS, 'pdfcairo') == 0) exit\n"
                "set terminal pdfcairo noenhanced",
                inches,
                fill_in(" font 'sans,{}'\nset output ", layout.scaled(10)),
                in_quotes(stem + ".pdf"),
                "\n",
                drawing);
}

}  // namespace troupe
