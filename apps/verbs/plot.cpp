// troupe plot: the curves of runs and comparisons that exist, in one figure.
#include "apps/compare/plot.hpp"

#include "apps/plot/drawing.hpp"
#include "apps/plot/folder_curves.hpp"
#include "apps/run/run_folder.hpp"
#include "apps/verbs/verb.hpp"
#include "runtime/record/output_file.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <ostream>
#include <set>

namespace troupe {
namespace {

struct PlotArguments {
  std::vector<std::string> folders;
  std::string out;
  std::string size = kFigureSizes.front();
  std::string title;
};

Measure measure_of_curves(const std::vector<FolderCurve>& curves) {
  for (const FolderCurve& curve : curves) {
    for (const Trial& trial : curve.trials) {
      if (std::ranges::any_of(trial.curve,
                              [](const CurvePoint& point) { return std::isnan(point.accuracy); })) {
        return Measure::loss;
      }
    }
  }
  return Measure::accuracy;
}

Figure figure_of(const std::vector<FolderCurve>& curves,
                 const std::string& title,
                 FigureSize size) {
  const Measure measure = measure_of_curves(curves);
  std::vector<std::vector<MeanPoint>> means;
  std::vector<std::string> titles;
  std::set<std::string> clocks;
  for (const FolderCurve& curve : curves) {
    means.push_back(mean_curve(curve.trials, measure));
    titles.push_back(curve.title);
    if (!curve.clock.empty()) {
      clocks.insert(curve.clock);
    }
  }
  const std::string clock = clocks.size() == 1 ? *clocks.begin() : "run's";
  std::vector<PlotPanel> panels = curve_panels(means, titles, measure, clock);
  for (std::size_t i = 0; i < curves.size(); ++i) {
    if (curves[i].losses.empty()) {
      continue;
    }
    std::vector<PlotPoint>& points = panels.back().lines[i].points;
    points.clear();
    for (const MeanPoint& point : curves[i].losses) {
      points.push_back({.x = point.epochs, .y = point.train_loss.mean});
    }
  }
  return {.stem = "curves", .title = title, .panels = std::move(panels), .size = size};
}

/// What of the figure is in the folder: "curves.svg, curves.png, curves.pdf, curves.gnuplot".
std::string files_of(const Figure& figure, const std::filesystem::path& folder) {
  std::string files;
  std::error_code code;
  for (const char* kind : {".svg", ".png", ".pdf", ".gnuplot"}) {
    if (std::filesystem::exists(folder / (figure.stem + kind), code)) {
      files += (files.empty() ? "" : ", ") + figure.stem + kind;
    }
  }
  return files;
}

Result<int> plot(Console& console, const PlotArguments& arguments) {
  const auto curves = prefixed("plot: ", curves_in(arguments.folders));
  TROUPE_TRY(curves);
  const Figure figure = figure_of(*curves, arguments.title, figure_size_of(arguments.size));
  if (figure_script(figure).empty()) {
    return Error{ErrorKind::data,
                 "plot: there is nothing to draw in these folders yet: no loss and no evaluation "
                 "has been recorded"};
  }
  std::optional<RunFolder> numbered;
  std::string folder = arguments.out;
  if (folder.empty()) {
    auto made = RunFolder::make(folder_of_runs(), "plot", RunFolder::Of::figures);
    TROUPE_TRY(made);
    numbered.emplace(*std::move(made));
    folder = numbered->path().string();
  } else if (auto made = make_run_directory(folder); !made) {
    return made.error();
  }
  const auto drawn = draw_figure(folder, figure);
  if (const std::string files = files_of(figure, folder); !files.empty()) {
    console.out << "files    " << folder << ": " << files << '\n' << std::flush;
  }
  TROUPE_TRY(drawn);
  return 0;
}

}  // namespace

Command declare_plot() {
  auto arguments = std::make_shared<PlotArguments>();
  return {.options = {{.names = "DIR",
                       .value = &arguments->folders,
                       .doc = "folders of runs and of comparisons",
                       .required = true},
                      {.names = "--title",
                       .value = &arguments->title,
                       .doc = "above the figure (default: none)"},
                      {.names = "--size",
                       .value = &arguments->size,
                       .doc = "of figures: screen, a page's or a column's width (default: screen)",
                       .legal = {kFigureSizes.begin(), kFigureSizes.end()}},
                      {.names = "--out",
                       .value = &arguments->out,
                       .doc = "folder for the figure; made here, or empty (default: runs/plot-N)",
                       .type = "DIR",
                       .refuse_empty = kEmptyFolder}},
          .action = [arguments](Console& console) {
            return plot(console, *arguments);
          }};
}

}  // namespace troupe
