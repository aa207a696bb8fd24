#include "apps/plot/folder_curves.hpp"

#include "apps/compare/report.hpp"
#include "kernels/numeral.hpp"
#include "runtime/data/csv_reader.hpp"
#include "runtime/data/input_file.hpp"
#include "runtime/record/json_reader.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr const char* kMetrics = "metrics.jsonl";
constexpr std::size_t kLossPointsMax = 400;  // of a curve: more would be no finer on paper

/// Its whole lines: a last one without an end is still being written. Error (data) where it is no file.
Result<std::string> text_of_file(const fs::path& path) {
  constexpr std::size_t kBytesMax = std::size_t{1} << 32;
  const auto bytes = read_input_file(path, kBytesMax);
  TROUPE_TRY(bytes);
  std::string text(bytes->begin(), bytes->end());
  text.resize(text.rfind('\n') + 1);  // npos + 1 is 0
  return text;
}

/// Whole lines, without their ends.
std::vector<std::string_view> whole_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  for (std::size_t end = text.find('\n'); end != text.npos; end = text.find('\n')) {
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return lines;
}

Error malformed(const fs::path& path, std::size_t line) {
  return {ErrorKind::data,
          concat(path.string(), ":", line, ": this line is not what troupe writes there")};
}

bool is_clock(const std::string& name) {
  return name == "real" || name == "virtual";
}

/// At most kLossPointsMax points, each the mean of as many neighbours.
std::vector<MeanPoint> thinned(const std::vector<MeanPoint>& points) {
  const std::size_t each = (points.size() + kLossPointsMax - 1) / kLossPointsMax;
  std::vector<MeanPoint> few;
  for (std::size_t first = 0; first < points.size(); first += each) {
    const std::size_t end = std::min(points.size(), first + each);
    const auto n = static_cast<double>(end - first);
    MeanPoint mean{.train_loss = {.count = 1, .mean = 0}};
    for (std::size_t i = first; i < end; ++i) {
      mean.epochs += points[i].epochs;
      mean.seconds += points[i].seconds;
      mean.train_loss.mean += points[i].train_loss.mean;
    }
    mean.epochs /= n;  // once: the mean of one point is that point
    mean.seconds /= n;
    mean.train_loss.mean /= n;
    few.push_back(mean);
  }
  return few;
}

Result<FolderCurve> curve_of_run(const fs::path& metrics, const std::string& title) {
  FolderCurve curve{.title = title};
  Trial trial{.outcome = Outcome::finished};
  std::vector<MeanPoint> losses;
  const auto text = text_of_file(metrics);
  TROUPE_TRY(text);
  std::size_t number = 0;
  for (const std::string_view line : whole_lines(*text)) {
    ++number;
    const Json of = Json::parse(line);
    if (!of.is_object()) {
      return malformed(metrics, number);
    }
    const std::string kind = of["kind"].words();
    if (kind == "header") {
      curve.clock = of["clock"].words();
      if (!is_clock(curve.clock)) {
        return malformed(metrics, number);
      }
    } else if (kind == "evaluation") {
      trial.curve.push_back({.updates = 0,
                             .epochs = of["epoch"].number(),
                             .seconds = of["seconds"].number(),
                             .train_loss = kUnknown,
                             .test_loss = of["loss"].number(),
                             .accuracy = of["accuracy"].number()});
    } else if (const double loss = of["loss"].number(); kind == "train" && std::isfinite(loss)) {
      losses.push_back({.epochs = of["epoch"].number(),
                        .seconds = of["seconds"].number(),
                        .value = {},
                        .train_loss = {.count = 1, .mean = loss}});
    }
  }
  curve.trials.push_back(std::move(trial));
  curve.losses = thinned(losses);
  return curve;
}

/// What a run's folder is called, also where a link such as `latest` leads to it.
std::string name_of_folder(const fs::path& folder) {
  std::error_code code;
  const fs::path real = fs::canonical(folder, code);
  return (code ? folder : real).filename().string();
}

/// The folders 01-NAME, 02-NAME, ... of a run that has phases, as far as it has come.
std::vector<fs::path> phases_in(const fs::path& folder) {
  std::vector<fs::path> phases;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(folder, code)) {
    const std::string name = entry.path().filename().string();
    const std::size_t digits = name.find_first_not_of("0123456789");
    if (digits != name.npos && digits > 0 && name[digits] == '-' &&
        fs::exists(entry.path() / kMetrics, code)) {
      phases.push_back(entry.path());
    }
  }
  std::sort(phases.begin(), phases.end());
  return phases;
}

Result<std::vector<FolderCurve>> curves_of_phases(const fs::path& folder,
                                                  const std::vector<fs::path>& phases) {
  std::vector<FolderCurve> curves;
  for (const fs::path& phase : phases) {
    auto curve = curve_of_run(phase / kMetrics,
                              concat(name_of_folder(folder), "/", phase.filename().string()));
    TROUPE_TRY(curve);
    curves.push_back(*std::move(curve));
  }
  return curves;
}

/// NaN of an empty cell; nothing where it is no number.
std::optional<double> number_in(std::string_view cell) {
  return cell.empty() ? kUnknown : numeral<double>(cell);
}

/// A seed in JSON: a number, or beyond those that a double holds exactly its digits in quotes.
std::optional<std::uint64_t> seed_of(const Json& seed) {
  const std::string digits = seed.words();
  return numeral<std::uint64_t>(digits.empty() ? seed.text() : digits);
}

/// Schemes and seeds that have finished, as compare.json has them.
std::set<std::pair<std::string, std::uint64_t>> finished_in(const Json& comparison) {
  std::set<std::pair<std::string, std::uint64_t>> finished;
  for (const Json& scheme : comparison["schemes"].elements()) {
    for (const Json& trial : scheme["seeds"].elements()) {
      if (const auto seed = seed_of(trial["seed"]);
          seed && trial["outcome"].words() == "finished") {
        finished.emplace(scheme["scheme"].words(), *seed);
      }
    }
  }
  return finished;
}

/// A line of curves.csv.
struct CurveLine {
  std::string scheme;
  std::uint64_t seed = 0;
  CurvePoint point;
};

std::optional<CurveLine> curve_line(const CsvRow& row) {
  constexpr std::size_t kCells = 8;
  const auto& cells = row.fields;
  if (cells.size() != kCells) {
    return {};
  }
  const auto seed = numeral<std::uint64_t>(cells[1]);
  const auto updates = numeral<std::int64_t>(cells[2]);
  std::vector<double> numbers;
  for (std::size_t i = 3; i < kCells; ++i) {
    if (const auto number = number_in(cells[i])) {
      numbers.push_back(*number);
    }
  }
  if (!seed || !updates || numbers.size() != kCells - 3) {
    return {};
  }
  return CurveLine{std::string(cells[0]),
                   *seed,
                   {.updates = *updates,
                    .epochs = numbers[0],
                    .seconds = numbers[1],
                    .train_loss = numbers[2],
                    .test_loss = numbers[3],
                    .accuracy = numbers[4]}};
}

Result<std::vector<FolderCurve>> curves_of_comparison(const fs::path& folder,
                                                      const fs::path& csv,
                                                      const fs::path& json) {
  const auto told = text_of_file(json);
  const auto text = text_of_file(csv);
  if (!told || !text) {
    return told ? text.error() : told.error();
  }
  const Json comparison = Json::parse(*told);
  const std::string clock = comparison["clock"].words();
  if (!is_clock(clock)) {
    return malformed(json, 1);
  }
  const auto finished = finished_in(comparison);
  if (finished.empty()) {
    return Error{ErrorKind::data, concat(folder.string(), ": no trial has finished there")};
  }
  std::vector<FolderCurve> curves;
  CsvReader reader(*text, ',');
  CsvRow row;
  for (bool heading = true;; heading = false) {
    const auto more = reader.next(row);
    if (!more) {
      return Error{ErrorKind::data, concat(csv.string(), " is not usable: ", more.error().message)};
    }
    if (!*more) {
      break;
    }
    const auto line = heading ? std::nullopt : curve_line(row);
    if (!heading && !line) {
      return malformed(csv, static_cast<std::size_t>(row.line));
    }
    if (!line || !finished.contains({line->scheme, line->seed})) {
      continue;
    }
    if (curves.empty() || curves.back().title != line->scheme) {
      curves.push_back({.title = line->scheme, .of_comparison = true, .clock = clock});
    }
    std::vector<Trial>& of_scheme = curves.back().trials;
    if (of_scheme.empty() || of_scheme.back().seed != line->seed) {
      of_scheme.push_back({.seed = line->seed, .outcome = Outcome::finished});
    }
    of_scheme.back().curve.push_back(line->point);
  }
  if (curves.empty()) {
    return Error{ErrorKind::data,
                 concat(folder.string(),
                        ": nothing was evaluated there (record.evaluate_every says how often)")};
  }
  return curves;
}

Result<std::vector<FolderCurve>> untitled_curves_in(const fs::path& folder) {
  std::error_code code;
  const fs::path csv = folder / "curves.csv";
  const fs::path json = folder / "compare.json";
  if (fs::exists(folder / kMetrics, code)) {
    auto curve = curve_of_run(folder / kMetrics, name_of_folder(folder));
    return curve ? Result<std::vector<FolderCurve>>({*std::move(curve)}) : curve.error();
  }
  if (fs::exists(csv, code) && fs::exists(json, code)) {
    return curves_of_comparison(folder, csv, json);
  }
  if (const auto phases = phases_in(folder); !phases.empty()) {
    return curves_of_phases(folder, phases);
  }
  return Error{
      ErrorKind::usage,
      concat(folder.string(),
             fs::exists(folder, code) ? " is neither the folder of a run (with metrics.jsonl) nor "
                                        "that of a comparison (with curves.csv and compare.json)"
                                      : " does not exist")};
}

/// What is drawn of folders that are several: the schemes of a comparison with its folder before them, and every title
/// that another curve has, too.
void tell_apart(std::vector<FolderCurve>& curves, bool several) {
  std::map<std::string, int> count;
  for (FolderCurve& curve : curves) {
    if (several && curve.of_comparison) {
      curve.title = concat(curve.folder, ": ", curve.title);
    }
    ++count[curve.title];
  }
  for (FolderCurve& curve : curves) {
    if (count[curve.title] > 1) {
      curve.title = concat(curve.folder, ": ", curve.title);
    }
  }
}

}  // namespace

Result<std::vector<FolderCurve>> curves_in(const std::vector<std::string>& folders) {
  std::vector<FolderCurve> all;
  std::map<fs::path, std::string> seen;  // what was named, by where it leads
  std::error_code code;
  for (const std::string& folder : folders) {
    auto curves = untitled_curves_in(folder);
    TROUPE_TRY(curves);
    const auto [before, is_new] = seen.emplace(fs::canonical(folder, code), folder);
    if (!is_new) {
      return Error{ErrorKind::usage,
                   before->second == folder
                       ? concat(folder, " is given twice")
                       : concat(folder, " and ", before->second, " are the same folder")};
    }
    for (FolderCurve& curve : *curves) {
      curve.folder = folder;
      all.push_back(std::move(curve));
    }
  }
  tell_apart(all, folders.size() > 1);
  return all;
}

}  // namespace troupe
