#include "apps/compare/plot.hpp"

#include "kernels/check.hpp"
#include "runtime/record/json.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>

extern char** environ;

namespace troupe {
namespace {

// Okabe and Ito's colours without the yellow: told apart by everybody, also in print.
constexpr std::array kColours{
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"};
// gnuplot's dash types, but dots, which are faint. A line over another one of the same values lets it
// be seen.
constexpr std::array kDashes{1, 2, 4, 5};

constexpr std::size_t kPanelWidth = 820;  // pixels
constexpr std::size_t kHeight = 900;
constexpr std::size_t kKeyWidth = 100;  // without its text
constexpr std::size_t kLetterWidth = 9;
constexpr std::size_t kLineHeight = 19;

/// Between single quotes, for gnuplot.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    out += c == '\'' ? "''" : std::string(1, c);
  }
  return out + "'";
}

/// Lines of "epochs seconds mean low high"; accuracies in percent.
std::string data_block(std::size_t index, const std::vector<MeanPoint>& curve, double unit) {
  std::string text = concat("$curve", index, " << EOD\n");
  for (const MeanPoint& point : curve) {
    const double sd = std::isnan(point.value.sd) ? 0 : point.value.sd;
    for (const double number :
         {point.epochs, point.seconds, unit * point.value.mean, unit * (point.value.mean - sd)}) {
      text += json_number(number) + " ";
    }
    text += json_number(unit * (point.value.mean + sd)) + "\n";
  }
  return text + "EOD\n";
}

struct Line {
  std::size_t index = 0;  // of the scheme
  std::string title;
};

/// One panel: bands first, so that no line is hidden; titles where `titled`.
std::string plot_command(const std::vector<Line>& lines, int column, bool bands, bool titled) {
  std::string text;
  const auto add = [&](const std::string& one) {
    text += (text.empty() ? "plot " : ", \\\n     ") + one;
  };
  const auto colour = [](const Line& line) {
    return concat("'", kColours[line.index % kColours.size()], "'");
  };
  for (const Line& line : lines) {
    if (bands) {
      add(concat("$curve",
                 line.index,
                 " using ",
                 column,
                 ":4:5 with filledcurves fillstyle transparent solid 0.15 noborder lc rgb ",
                 colour(line),
                 " notitle"));
    }
  }
  for (const Line& line : lines) {
    add(concat("$curve",
               line.index,
               " using ",
               column,
               ":3 with linespoints lw 2 pt 7 ps 0.5 dt ",
               kDashes[line.index % kDashes.size()],
               " lc rgb ",
               colour(line),
               titled ? " title " + quoted(line.title) : " notitle"));
  }
  return text + "\n";
}

}  // namespace

std::string plot_script(const Comparison& c) {
  const bool accuracy = c.measure == Measure::accuracy;
  std::string data;
  std::vector<Line> lines;
  std::size_t longest = 0;
  for (std::size_t i = 0; i < c.schemes.schemes.size(); ++i) {
    const std::vector<MeanPoint> curve = mean_curve(c.trials_of(i), c.measure);
    if (curve.empty() || std::isnan(curve.back().value.mean)) {
      continue;
    }
    data += data_block(i, curve, accuracy ? 100 : 1);
    std::string title = c.schemes.schemes[i].label;
    if (const std::size_t lost = c.figures[i].diverged + c.figures[i].failed; lost > 0) {
      title += concat(" (", c.figures[i].trials - lost, "/", c.figures[i].trials, " seeds)");
    }
    longest = std::max(longest, title.size());
    lines.push_back({i, std::move(title)});
  }
  if (lines.empty()) {
    return "";
  }
  std::string names;  // each experiment once
  for (const Contender& scheme : c.schemes.schemes) {
    const std::string& name = scheme.experiment;
    if ((", " + names + ", ").find(", " + name + ", ") == std::string::npos) {
      names += (names.empty() ? "" : ", ") + name;
    }
  }
  const std::string seeds = c.seeds > 1
                                ? concat("mean and standard deviation of ", c.seeds, " seeds")
                                : concat("one seed");
  const std::size_t width = kPanelWidth + kKeyWidth + kLetterWidth * longest;
  const std::size_t height = std::max(kHeight, kLineHeight * lines.size() + 120);
  const double right = static_cast<double>(kPanelWidth) / static_cast<double>(width);
  const std::string panels = concat("set multiplot layout 2,1 title ",
                                    quoted(concat(names, ": ", c.clock, " clock, ", seeds)),
                                    "\nset key at screen ",
                                    json_number(right + 20.0 / static_cast<double>(width)),
                                    ", screen 0.95 top left Left reverse\nset xlabel 'epochs'\n",
                                    plot_command(lines, 1, c.seeds > 1, true),
                                    "set key off\nset xlabel ",
                                    quoted("seconds of the " + c.clock + " clock"),
                                    "\n",
                                    plot_command(lines, 2, c.seeds > 1, false),
                                    "unset multiplot\n");
  const std::string terminal = concat(" noenhanced size ", width, ",", height);
  return concat("# Drawn by troupe compare. In this folder, `gnuplot ",
                kPlotScript,
                "` draws curves.svg and curves.png again.\n",
                "# A point: epochs, seconds, mean, mean - deviation, mean + deviation.\n",
                data,
                "set grid back lt 1 lc rgb '#d8d8d8'\nset xrange [0:*]\nset lmargin 10\nset "
                "rmargin at screen ",
                json_number(right),
                "\nset ylabel ",
                accuracy ? "'accuracy on the test data, %'" : "'loss on the test data'",
                "\nset terminal svg",
                terminal,
                " background rgb 'white' font 'sans,14'\nset output 'curves.svg'\n",
                panels,
                "set terminal pngcairo",
                terminal,
                " font 'sans,11'\nset output 'curves.png'\n",
                panels,
                "set output\n");
}

Result<void> draw(const std::filesystem::path& folder, const std::string& program) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addchdir_np(&files, folder.c_str());
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  // Its warnings are about fonts and their caches; the script is there for who wants to see them.
  posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
  std::string name = program;
  std::string plain = "--default-settings";  // nobody's own start-up file
  std::string script = kPlotScript;
  std::array<char*, 4> argv{name.data(), plain.data(), script.data(), nullptr};
  pid_t process = -1;
  const int failure =
      posix_spawnp(&process, program.c_str(), &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  const std::string later = concat("; `gnuplot ", kPlotScript, "` in ", folder.string());
  if (failure == ENOENT) {
    return Error{ErrorKind::lost,
                 concat("curves.svg and curves.png are not drawn, as there is no ",
                        program,
                        " (Debian's package is gnuplot-nox)",
                        later,
                        " draws them later")};
  }
  int status = 0;
  if (failure != 0 || waitpid(process, &status, 0) != process || !WIFEXITED(status) ||
      WEXITSTATUS(status) != 0) {
    return Error{ErrorKind::lost,
                 concat("curves.svg and curves.png are not drawn, as ",
                        program,
                        " failed",
                        later,
                        " says why")};
  }
  return {};
}

}  // namespace troupe
