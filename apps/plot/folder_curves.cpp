#include "apps/plot/folder_curves.hpp"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kLossPointsMax = 400;  // of a curve: more would be no finer on paper

using Fields = google::protobuf::Map<std::string, google::protobuf::Value>;

std::string text_of_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
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

double number_of(const Fields& fields, const char* name) {
  const auto found = fields.find(name);
  return found != fields.end() && found->second.has_number_value() ? found->second.number_value()
                                                                   : kUnknown;
}

std::string words_of(const Fields& fields, const char* name) {
  const auto found = fields.find(name);
  return found != fields.end() ? found->second.string_value() : "";
}

bool parse_object(std::string_view text, google::protobuf::Struct& object) {
  object.Clear();
  return google::protobuf::util::JsonStringToMessage(std::string(text), &object).ok();
}

/// At most kLossPointsMax points, each the mean of as many neighbours.
std::vector<MeanPoint> thinned(const std::vector<MeanPoint>& points) {
  const std::size_t each = points.size() / kLossPointsMax + 1;
  std::vector<MeanPoint> few;
  for (std::size_t first = 0; first < points.size(); first += each) {
    const std::size_t end = std::min(points.size(), first + each);
    const auto n = static_cast<double>(end - first);
    MeanPoint mean{.train_loss = {.count = 1, .mean = 0}};
    for (std::size_t i = first; i < end; ++i) {
      mean.epochs += points[i].epochs / n;
      mean.seconds += points[i].seconds / n;
      mean.train_loss.mean += points[i].train_loss.mean / n;
    }
    few.push_back(mean);
  }
  return few;
}

Result<std::vector<FolderCurve>> curve_of_run(const fs::path& folder, const fs::path& metrics) {
  std::error_code code;
  const fs::path real = fs::canonical(folder, code);  // what `latest` leads to
  FolderCurve curve{.title = (code ? folder : real).filename().string()};
  Trial trial{.outcome = Outcome::finished};
  std::vector<MeanPoint> losses;
  const std::string text = text_of_file(metrics);
  google::protobuf::Struct object;
  std::size_t number = 0;
  for (const std::string_view line : whole_lines(text)) {
    ++number;
    if (!parse_object(line, object)) {
      return malformed(metrics, number);
    }
    const Fields& fields = object.fields();
    const std::string kind = words_of(fields, "kind");
    if (kind == "header") {
      curve.clock = words_of(fields, "clock");
    } else if (kind == "evaluation") {
      trial.curve.push_back({.updates = 0,
                             .epochs = number_of(fields, "epoch"),
                             .seconds = number_of(fields, "seconds"),
                             .train_loss = kUnknown,
                             .test_loss = number_of(fields, "loss"),
                             .accuracy = number_of(fields, "accuracy")});
    } else if (kind == "train" && std::isfinite(number_of(fields, "loss"))) {
      losses.push_back({.epochs = number_of(fields, "epoch"),
                        .seconds = number_of(fields, "seconds"),
                        .value = {},
                        .train_loss = {.count = 1, .mean = number_of(fields, "loss")}});
    }
  }
  curve.trials.push_back(std::move(trial));
  curve.losses = thinned(losses);
  return std::vector<FolderCurve>{std::move(curve)};
}

/// The cells of a line of RFC 4180.
std::vector<std::string> cells_of_line(std::string_view line) {
  std::vector<std::string> cells{""};
  bool inside = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (inside && line[i] == '"' && i + 1 < line.size() && line[i + 1] == '"') {
      cells.back() += line[++i];
    } else if (line[i] == '"') {
      inside = !inside;
    } else if (!inside && line[i] == ',') {
      cells.emplace_back();
    } else {
      cells.back() += line[i];
    }
  }
  return cells;
}

/// NaN of an empty cell; nothing where it is no number.
std::optional<double> number_in(const std::string& cell) {
  if (cell.empty()) {
    return kUnknown;
  }
  double number = 0;
  const auto [end, failed] = std::from_chars(cell.data(), cell.data() + cell.size(), number);
  return failed == std::errc() && end == cell.data() + cell.size() ? std::optional(number)
                                                                   : std::nullopt;
}

/// Schemes and seeds that have finished, as compare.json has them.
std::set<std::pair<std::string, std::string>> finished_in(const google::protobuf::Struct& object) {
  std::set<std::pair<std::string, std::string>> finished;
  const auto schemes = object.fields().find("schemes");
  if (schemes == object.fields().end()) {
    return finished;
  }
  for (const auto& scheme : schemes->second.list_value().values()) {
    const Fields& fields = scheme.struct_value().fields();
    const auto seeds = fields.find("seeds");
    if (seeds == fields.end()) {
      continue;
    }
    for (const auto& seed : seeds->second.list_value().values()) {
      const Fields& trial = seed.struct_value().fields();
      if (words_of(trial, "outcome") == "finished") {
        finished.emplace(words_of(fields, "scheme"), concat(number_of(trial, "seed")));
      }
    }
  }
  return finished;
}

Result<std::vector<FolderCurve>> curves_of_comparison(const fs::path& folder,
                                                      const fs::path& csv,
                                                      const fs::path& json) {
  google::protobuf::Struct object;
  if (!parse_object(text_of_file(json), object)) {
    return malformed(json, 1);
  }
  const auto finished = finished_in(object);
  const std::string clock = words_of(object.fields(), "clock");
  std::vector<FolderCurve> curves;
  const std::string text = text_of_file(csv);
  const std::vector<std::string_view> lines = whole_lines(text);
  for (std::size_t i = 1; i < lines.size(); ++i) {
    constexpr std::size_t kCells = 8;
    const std::vector<std::string> cells = cells_of_line(lines[i]);
    std::vector<double> numbers;
    for (std::size_t c = 1; c < cells.size(); ++c) {
      if (const auto number = number_in(cells[c])) {
        numbers.push_back(*number);
      }
    }
    if (cells.size() != kCells || numbers.size() != kCells - 1) {
      return malformed(csv, i + 1);
    }
    if (!finished.contains({cells[0], concat(numbers[0])})) {
      continue;
    }
    if (curves.empty() || curves.back().title != cells[0]) {
      curves.push_back({.title = cells[0], .clock = clock});
    }
    std::vector<Trial>& of_scheme = curves.back().trials;
    const auto seed = static_cast<std::uint64_t>(numbers[0]);
    if (of_scheme.empty() || of_scheme.back().seed != seed) {
      of_scheme.push_back({.seed = seed, .outcome = Outcome::finished});
    }
    of_scheme.back().curve.push_back({.updates = static_cast<std::int64_t>(numbers[1]),
                                      .epochs = numbers[2],
                                      .seconds = numbers[3],
                                      .train_loss = numbers[4],
                                      .test_loss = numbers[5],
                                      .accuracy = numbers[6]});
  }
  if (curves.empty()) {
    return Error{ErrorKind::data, concat(folder.string(), ": no trial has finished there")};
  }
  return curves;
}

}  // namespace

Result<std::vector<FolderCurve>> curves_in(const fs::path& folder) {
  std::error_code code;
  const fs::path metrics = folder / "metrics.jsonl";
  const fs::path csv = folder / "curves.csv";
  const fs::path json = folder / "compare.json";
  if (fs::exists(metrics, code)) {
    return curve_of_run(folder, metrics);
  }
  if (fs::exists(csv, code) && fs::exists(json, code)) {
    return curves_of_comparison(folder, csv, json);
  }
  return Error{
      ErrorKind::usage,
      concat(folder.string(),
             fs::exists(folder, code) ? " is neither the folder of a run (with metrics.jsonl) nor "
                                        "that of a comparison (with curves.csv and compare.json)"
                                      : " does not exist")};
}

}  // namespace troupe
