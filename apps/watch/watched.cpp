#include "apps/watch/watched.hpp"

#include "apps/run/run_folder.hpp"
#include "apps/run/run_state.hpp"
#include "apps/watch/diagnosis.hpp"
#include "experiment.pb.h"
#include "kernels/numeral.hpp"
#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "runtime/cluster/tcp.hpp"
#include "runtime/data/csv_reader.hpp"
#include "runtime/record/json.hpp"
#include "runtime/record/json_reader.hpp"
#include "runtime/serve/http.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
constexpr std::size_t kLineMax = 16 * kPieceBytes;
constexpr std::size_t kFileMax = 256 * kPieceBytes;
constexpr std::size_t kFolderMax = 12;  // runs of one folder of runs, the newest ones

/// Not open where it is no file: to open a pipe waits for who writes it.
std::ifstream opened(const fs::path& path) {
  std::error_code code;
  return fs::is_regular_file(path, code) ? std::ifstream(path, std::ios::binary) : std::ifstream();
}

/// "" where it cannot be read, or is too large for what it should be.
std::string whole_file(const fs::path& path) {
  std::error_code code;
  std::ostringstream text;
  if (auto file = opened(path); file.is_open() && fs::file_size(path, code) <= kFileMax) {
    text << file.rdbuf();
  }
  return text.str();
}

/// {"kind":"summary", ...} of the object that a file holds over several lines: in its texts no line ends.
std::string line_of_object(const char* kind, std::string object) {
  std::replace(object.begin(), object.end(), '\n', ' ');
  object.resize(object.rfind('}') + 1);  // npos + 1 is 0
  const std::size_t brace = object.find('{');
  return brace == object.npos
             ? ""
             : concat(
                   "{\"kind\":\"", kind, "\",", std::string_view(object).substr(brace + 1), "\n");
}

/// Whole lines from byte `from` on. One that is longer than a piece is read all the same; one of more than 16 MiB, which no run
/// writes, counts as one that has not come to its end.
std::string lines_from(const fs::path& path, std::int64_t from) {
  std::ifstream file = opened(path);
  file.seekg(from);
  std::string text;
  std::size_t whole = 0;
  while (whole == 0 && file && text.size() < kLineMax) {
    const std::size_t before = text.size();
    text.resize(before + kPieceBytes);
    file.read(text.data() + before, static_cast<std::streamsize>(kPieceBytes));
    text.resize(before + static_cast<std::size_t>(file.gcount()));
    const std::size_t end = std::string_view(text).substr(before).rfind('\n');
    whole = end == text.npos ? 0 : before + end + 1;
  }
  text.resize(whole);
  return text;
}

/// Whether a line ends before byte `at`; not where the file is shorter.
bool begins_a_line(const fs::path& path, std::int64_t at) {
  std::ifstream file = opened(path);
  file.seekg(at - 1);
  return at == 0 || file.get() == '\n';
}

std::string mark_of(const fs::path& path) {
  std::error_code code;
  const auto time = fs::last_write_time(path, code);
  return code ? "" : std::to_string(time.time_since_epoch().count());
}

double seconds_since(const fs::path& path) {
  std::error_code code;
  const auto time = fs::last_write_time(path, code);
  const std::chrono::duration<double> since = fs::file_time_type::clock::now() - time;
  return code ? 0 : std::max(0.0, since.count());
}

std::optional<proto::Experiment> experiment_in(const fs::path& folder) {
  auto parsed = parse_experiment(whole_file(folder / "experiment.textproto"), "");
  return parsed ? std::optional(*std::move(parsed)) : std::nullopt;
}

std::string last_line(std::string_view text, std::string_view kind) {
  const std::size_t begin = text.rfind(concat("{\"kind\":\"", kind, "\""));
  return begin == text.npos ? "" : std::string(text.substr(begin, text.find('\n', begin) - begin));
}

/// The last bytes of metrics.jsonl, which have the last line of each kind that comes often.
std::string end_of_lines(const fs::path& path) {
  std::error_code code;
  const auto size = static_cast<std::int64_t>(fs::file_size(path, code));
  return code ? ""
              : lines_from(
                    path, std::max<std::int64_t>(0, size - static_cast<std::int64_t>(kPieceBytes)));
}

std::string line_of(const char* kind, const JsonObject& object) {
  return line_of_object(kind, object.text());
}

std::string piece_of_run(const Watched& run, WatchedState state) {
  const fs::path metrics = run.folder / "metrics.jsonl";
  const fs::path summary = run.folder / "summary.json";
  std::string text;
  const bool goes_on = is_being_written(metrics);  // before what it writes at its end is looked at
  state.anew = !begins_a_line(metrics, state.next) || (goes_on && !state.have.empty());
  if (state.anew) {
    state = {.anew = true};
  }
  std::optional<proto::Experiment> experiment;
  if (state.next == 0) {
    experiment = experiment_in(run.folder);
    std::string printed = experiment ? print_experiment_json(*experiment) : "null";
    JsonObject told;
    told.add("name", run.name).add("folder", run.folder.string()).raw("experiment", printed);
    text = line_of("run", told);
  }
  const std::string lines = lines_from(metrics, state.next);
  const bool first = state.next == 0;
  text += lines;
  state.next += static_cast<std::int64_t>(lines.size());
  std::error_code code;
  const auto size = static_cast<std::int64_t>(fs::file_size(metrics, code));
  state.more = !code && !lines.empty() && state.next < size;
  const std::string mark = goes_on ? "" : mark_of(summary);
  state.over =
      !mark.empty() &&
      tells_the_end(summary, Json::parse(whole_file(summary))["updates"].number(), metrics);
  state.killed = !goes_on && !state.over && size > 0 && !code;
  state.silent = seconds_since(metrics);
  if (!state.more && (first || !lines.empty() || (state.over && mark != state.have))) {
    const std::string end = state.over ? line_of_object("summary", whole_file(summary)) : "";
    text += state.have == mark ? "" : end;
    state.have = state.over ? mark : "";
    experiment = experiment ? experiment : experiment_in(run.folder);
    const auto sentences = diagnosis(
        experiment.value_or(proto::Experiment()), last_line(end_of_lines(metrics), "train"), end);
    std::string list = joined(sentences, ",", json_string);
    text += line_of("diagnosis", JsonObject{}.raw("sentences", "[" + list + "]"));
  }
  JsonObject last;
  state.tell(last);
  return text + line_of("state", last);
}

bool is_number(std::string_view cell) {
  return std::isfinite(numeral<double>(cell).value_or(NAN));
}

/// The rows of curves.csv, a line each.
std::string curve_lines(const std::string& csv) {
  CsvReader reader(csv, ',');
  CsvRow row;
  std::vector<std::string> names;
  std::string text;
  for (auto more = reader.next(row); more && *more; more = reader.next(row)) {
    if (names.empty()) {
      names.assign(row.fields.begin(), row.fields.end());
      continue;
    }
    JsonObject line;
    for (std::size_t i = 0; i < std::min(names.size(), row.fields.size()); ++i) {
      // A scheme may be called "1"; a number that JSON writes otherwise stays as a text.
      i > 0 && is_number(row.fields[i]) ? line.raw(names[i], row.fields[i])
                                        : line.add(names[i], row.fields[i]);
    }
    text += line_of("curve", line);
  }
  return text;
}

std::string piece_of_comparison(const Watched& of, WatchedState state) {
  const fs::path json = of.folder / "compare.json";
  // One that goes on in the folder of another has not written its own yet.
  const std::string mark = is_being_written(of.folder / "trials/lock") ? "" : mark_of(json);
  std::string text;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(of.folder / "trials", code)) {
    state.trials += entry.path().extension() == ".trial" ? 1 : 0;
  }
  state.over = !mark.empty();
  state.silent = seconds_since(of.folder / "trials");
  state.anew = state.next == 0 || mark != state.have;
  if (state.anew) {
    text = line_of("run", JsonObject{}.add("name", of.name).add("folder", of.folder.string()));
    if (state.over) {
      text += line_of_object("comparison", whole_file(json)) +
              curve_lines(whole_file(of.folder / "curves.csv"));
    }
  }
  state.have = mark;
  state.next = 1;
  JsonObject last;
  state.tell(last);
  return text + line_of("state", last);
}

bool is_run(const fs::path& folder) {
  std::error_code code;
  return fs::is_regular_file(folder / "metrics.jsonl", code);
}

bool is_comparison(const fs::path& folder) {
  std::error_code code;
  return fs::is_regular_file(folder / "compare.json", code) ||
         fs::is_directory(folder / "trials", code);
}

/// What a folder is called, also where a link such as `latest` leads to it.
std::string folder_name(const fs::path& folder) {
  std::error_code code;
  const fs::path real = fs::canonical(folder, code);
  return (code ? folder : real).filename().string();
}

/// The runs and comparisons in `folder`, as phases of one run or all of a folder of runs: the newest ones, by name.
std::vector<Watched> runs_within(const fs::path& folder) {
  std::vector<std::pair<fs::file_time_type, Watched>> found;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(folder, code)) {
    const fs::path& path = entry.path();
    if (!entry.is_symlink(code) && (is_run(path) || is_comparison(path))) {
      found.emplace_back(
          fs::last_write_time(path, code),
          Watched{.name = folder_name(folder) + "/" + path.filename().string(), .folder = path});
    }
  }
  std::sort(
      found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  found.resize(std::min(found.size(), kFolderMax));
  std::vector<Watched> runs;
  for (auto& [_, run] : found) {
    runs.push_back(std::move(run));
  }
  std::sort(
      runs.begin(), runs.end(), [](const Watched& a, const Watched& b) { return a.name < b.name; });
  return runs;
}

Result<std::vector<Watched>> runs_at(const std::string& address, const std::string& token) {
  const auto told = http_get(address, "/runs", token);
  TROUPE_TRY(told);
  const Json names = Json::parse(*told)["runs"];
  if (!names.is_list()) {
    return Error{ErrorKind::lost, address + " is no `troupe watch`"};
  }
  std::vector<Watched> runs;
  for (const Json& name : names.elements()) {
    runs.push_back(
        {.name = name.words(), .address = address, .token = token, .place = runs.size()});
  }
  return runs;
}

Result<std::vector<Watched>> runs_of(const std::string& named, const std::string& token) {
  const fs::path folder = named;
  std::error_code code;
  if (is_run(folder) || is_comparison(folder)) {
    return std::vector{Watched{.name = folder_name(folder), .folder = folder}};
  }
  if (!fs::exists(folder, code) && parse_address(named)) {
    return runs_at(named, token);
  }
  auto within = runs_within(folder);
  if (within.empty()) {
    return usage_error("{}{}",
                       named,
                       fs::exists(folder, code)
                           ? " is neither the folder of a run (with metrics.jsonl) nor that of a "
                             "comparison (with compare.json), and none is in it"
                           : " does not exist; `troupe run` makes runs, in runs/ unless it is told "
                             "where (--out DIR)");
  }
  return within;
}

}  // namespace

WatchedState state_in(std::string_view piece) {
  const std::string line = last_line(piece, "state");
  const Json state = Json::parse(line);
  if (!state.is_object()) {
    return {};
  }
  const auto whole = [&](const char* name) {  // another watch may say what it likes
    const double number = state[name].number();
    return number >= 0 ? static_cast<std::int64_t>(std::min(number, 1e15)) : 0;
  };
  return {.next = whole("next"),
          .have = state["have"].words(),
          .more = state["more"].is_true(),
          .anew = state["anew"].is_true(),
          .over = state["over"].is_true(),
          .killed = state["killed"].is_true(),
          .silent = state["silent"].number(),
          .trials = whole("trials")};
}

Result<std::string> Watched::read(const WatchedState& state) const {
  if (!address.empty()) {
    return http_get(
        address, concat("/run?i=", place, "&from=", state.next, "&have=", state.have), token);
  }
  const WatchedState before{.next = state.next, .have = state.have};
  return is_run(folder) ? piece_of_run(*this, before) : piece_of_comparison(*this, before);
}

Result<void> read_on(const Watched& run,
                     WatchedState& state,
                     const std::function<void()>& forget,
                     const std::function<void(std::string_view)>& take) {
  bool more = true;
  for (bool again = false; more;) {
    const auto piece = run.read(state);
    TROUPE_TRY(piece);
    const std::int64_t before = state.next;
    state = state_in(*piece);
    more = state.more && (state.next > before || (state.anew && !again));
    if (state.anew) {
      again = true;
      forget();
    }
    std::string_view rest = *piece;
    for (std::size_t end = rest.find('\n'); end != rest.npos; end = rest.find('\n')) {
      take(rest.substr(0, end));
      rest.remove_prefix(end + 1);
    }
  }
  return {};
}

Result<std::vector<Watched>> find_watched(std::vector<std::string> named,
                                          const std::string& token) {
  if (named.empty()) {
    named.push_back((fs::path(folder_of_runs()) / "latest").string());
  }
  std::vector<Watched> all;
  std::map<std::string, int> count;
  for (const std::string& one : named) {
    auto runs = runs_of(one, token);
    TROUPE_TRY(runs);
    for (Watched& run : *runs) {
      if (const int before = count[run.name]++; before > 0) {
        run.name += concat(" (", before + 1, ")");
      }
      all.push_back(std::move(run));
    }
  }
  return all;
}

}  // namespace troupe
