// troupe runs: the runs of a folder, read from what they have written until now.
#include "apps/cli/text.hpp"
#include "apps/run/run_folder.hpp"
#include "apps/run/run_state.hpp"
#include "apps/verbs/verb.hpp"
#include "experiment.pb.h"
#include "experiment/pipeline.pb.h"
#include "experiment/replicas.pb.h"
#include "kernels/sequences.hpp"
#include "messages/experiment.hpp"
#include "runtime/data/input_file.hpp"
#include "runtime/record/json.hpp"
#include "runtime/record/json_reader.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <ostream>
#include <tuple>

namespace troupe {
namespace {

namespace fs = std::filesystem;

struct FoundRun {
  std::string name{};
  std::string scheme{};
  std::time_t begun = 0;
  long nanoseconds = 0;  // after that second, for their order
  std::string state{};   // "running", "killed", or what summary.json says
  std::optional<double> updates{};
  std::optional<double> loss{};  // of the test data, else of the training
  std::optional<double> accuracy{};
  std::optional<double> seconds{};  // of the run's clock

  void tell(auto& json) const {
    json("name", name)("scheme", scheme)("begun", static_cast<std::int64_t>(begun))("state", state);
    json("updates", updates)("loss", loss)("accuracy", accuracy)("seconds", seconds);
  }
};

std::optional<double> number_in(const Json& json) {
  const double number = json.number();
  return std::isnan(number) ? std::nullopt : std::optional(number);
}

/// "spectrain async_one_f_one_b, asgd parameter_server": what a run of this experiment does that plain training would not.
std::string scheme_of(const proto::Experiment& e) {
  std::vector<std::string> words;
  if (e.pipeline().stages() > 1) {
    words.push_back(choice_name(e.pipeline().weights()) + ' ' +
                    choice_name(e.pipeline().schedule()));
  }
  if (e.replicas().count() > 1) {
    words.push_back(choice_name(e.replicas().rule()) + ' ' + choice_name(e.replicas().exchange()));
  }
  if (const std::string method = choice_name(e.decoupled()); !method.empty() && method != "none") {
    words.push_back(method);
  }
  return words.empty() ? "plain" : joined(words, ", ");
}

/// The last lines of metrics.jsonl say how far the run has come.
void read_metrics(const fs::path& file, FoundRun& run) {
  constexpr std::streamoff kTail = 1 << 16;
  std::error_code code;
  std::ifstream in;
  if (fs::is_regular_file(file, code)) {  // to open a pipe waits for who writes it
    in.open(file, std::ios::binary | std::ios::ate);
  }
  const std::streamoff size = in ? static_cast<std::streamoff>(in.tellg()) : 0;
  in.seekg(std::max<std::streamoff>(0, size - kTail));
  std::string text(std::istreambuf_iterator<char>(in), {});
  text.resize(text.rfind('\n') + 1);  // a line that is being written; npos + 1 is 0
  std::optional<double> trained;
  while (!text.empty()) {
    const std::size_t end = text.size() - 1;
    const std::size_t begin = end > 0 ? text.rfind('\n', end - 1) + 1 : 0;
    const Json line = Json::parse(std::string_view(text).substr(begin, end - begin));
    const std::string kind = line["kind"].words();
    if (kind == "train" && !run.updates) {
      run.updates = number_in(line["step"]);
      run.seconds = number_in(line["seconds"]);
      trained = number_in(line["loss"]);
    } else if (kind == "evaluation" && !run.loss) {
      run.loss = number_in(line["loss"]);
      run.accuracy = number_in(line["accuracy"]);
    }
    if (run.updates && run.loss) {
      return;
    }
    text.resize(begin);
  }
  run.loss = run.loss ? run.loss : trained;
}

void read_summary(const fs::path& file, FoundRun& run) {
  constexpr std::size_t kBytesMax = std::size_t{1} << 28;
  const auto bytes = read_input_file(file, kBytesMax);
  if (!bytes) {
    return;
  }
  const Json all = Json::parse({reinterpret_cast<const char*>(bytes->data()), bytes->size()});
  const std::string outcome = all["outcome"].words();
  run.state = outcome.empty() ? run.state : outcome;
  run.updates = number_in(all["updates"]);
  run.seconds = number_in(all["seconds"]);
  run.accuracy = number_in(all["test_accuracy"]);
  const auto tested = number_in(all["test_loss"]);
  run.loss = tested ? tested : number_in(all["train_loss"]);
}

/// Where the metrics are: of a run with phases those of the last phase that has begun.
fs::path metrics_of(const fs::path& folder) {
  fs::path newest = folder / "metrics.jsonl";
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(folder, code)) {
    const fs::path metrics = entry.path() / "metrics.jsonl";
    if (fs::is_regular_file(metrics, code) && metrics > newest) {
      newest = metrics;
    }
  }
  return newest;
}

/// Nothing where the folder is none of a run.
std::optional<FoundRun> run_in(const fs::path& folder) {
  const fs::path experiment = folder / "experiment.textproto";

  struct stat status {};

  constexpr std::size_t kBytesMax = std::size_t{1} << 20;
  const auto text = ::stat(experiment.c_str(), &status) == 0
                        ? read_input_file(experiment, kBytesMax)
                        : Result<Bytes>(Error{});
  const auto parsed = text ? parse_experiment(std::string(text->begin(), text->end()), "")
                           : Result<proto::Experiment>(Error{});
  if (!parsed) {
    return {};
  }
  FoundRun run{.name = folder.filename(),
               .scheme = scheme_of(*parsed),
               .begun = status.st_mtime,
               .nanoseconds = status.st_mtim.tv_nsec};
  const fs::path metrics = metrics_of(folder);
  const bool goes_on = is_being_written(metrics);  // before what it writes at its end is read
  read_metrics(metrics, run);
  run.state = goes_on ? "running" : "killed";  // it has not said how it ended
  const fs::path summary = folder / "summary.json";
  FoundRun end = run;
  read_summary(summary, end);
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  return !goes_on && tells_the_end(summary, end.updates.value_or(kNone), metrics) ? end : run;
}

std::vector<FoundRun> runs_in(const fs::path& folder) {
  std::vector<FoundRun> all;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(folder, code)) {
    if (!entry.is_symlink(code) && entry.is_directory(code)) {
      if (auto run = run_in(entry.path())) {
        all.push_back(*std::move(run));
      }
    }
  }
  std::sort(all.begin(), all.end(), [](const FoundRun& a, const FoundRun& b) {
    return std::tie(a.begun, a.nanoseconds, a.name) < std::tie(b.begun, b.nanoseconds, b.name);
  });
  return all;
}

/// "2026-11-27 13:05", where this is read.
std::string when(std::time_t at) {
  std::tm there{};
  ::localtime_r(&at, &there);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M", &there)};
}

Result<int> list_runs(Console& console, const std::string& folder, bool json) {
  const std::string where = folder.empty() ? folder_of_runs() : folder;
  std::error_code code;
  if (!fs::is_directory(where, code)) {
    return Error{ErrorKind::usage, concat("runs: there is no folder ", where)};
  }
  std::vector<FoundRun> runs = runs_in(where);
  if (runs.empty()) {
    if (auto only = run_in(where)) {  // the folder of one
      only->name = fs::canonical(where, code).filename();
      runs.push_back(*std::move(only));
    }
  }
  std::vector<std::vector<std::string>> rows{
      {"name", "scheme", "begun", "updates", "loss", "accuracy", "seconds", "state"}};
  for (const FoundRun& run : runs) {
    if (json) {
      JsonObject line;
      run.tell(line);
      console.out << line.text() << '\n';
      continue;
    }
    const auto shown = [](const std::optional<double>& value, const char* pattern) {
      return value ? number(*value, pattern) : std::string("-");
    };
    rows.push_back({run.name,
                    run.scheme,
                    when(run.begun),
                    shown(run.updates, "%.0f"),
                    shown(run.loss, "%.4f"),
                    shown(run.accuracy, "%.4f"),
                    shown(run.seconds, "%.3g"),
                    run.state});
  }
  if (!json && !runs.empty()) {
    console.out << table(rows);
  } else if (runs.empty()) {
    console.err << "no run is kept in " << where << '\n';
  }
  return 0;
}

}  // namespace

Command declare_runs() {
  struct Arguments {
    std::string folder;
    bool json = false;
  };

  auto arguments = std::make_shared<Arguments>();
  return {.options = {{.names = "DIR",
                       .value = &arguments->folder,
                       .doc = "folder whose runs are listed, the newest last (default: runs, or "
                              "$TROUPE_RUNS)",
                       .refuse_empty = kEmptyFolder},
                      {.names = "--json",
                       .value = &arguments->json,
                       .doc = "an object a line; what is not known is null"}},
          .action = [arguments](Console& console) {
            return list_runs(console, arguments->folder, arguments->json);
          }};
}

}  // namespace troupe
