// troupe run, troupe sim: the same experiment on the real and on the virtual clock.
#include "apps/run.hpp"

#include "apps/interrupts.hpp"
#include "apps/plan.hpp"
#include "apps/presets.hpp"
#include "apps/text.hpp"
#include "apps/verbs/verb.hpp"
#include "messages/experiment.hpp"
#include "runtime/record/progress.hpp"
#include "runtime/system/log.hpp"

#include <CLI/CLI.hpp>

#include <cmath>
#include <memory>
#include <ostream>

namespace troupe {
namespace {

struct Arguments {
  ExperimentArguments experiment;
  std::string out;
  bool quiet = false;
  bool verbose = false;
  bool list = false;
};

int list_presets(Console& console) {
  std::vector<std::vector<std::string>> rows;
  for (const Preset& preset : presets()) {
    rows.push_back({std::string(preset.name), std::string(preset.summary())});
  }
  console.out << table(rows);
  return 0;
}

std::string number(double value, const char* pattern = "%.4f") {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), pattern, value);
  return std::isfinite(value) ? text.data() : "not finite";
}

std::string staleness_text(const Summary& summary) {
  std::string text;
  for (const auto& [shard, staleness] : summary.staleness) {
    text += concat(text.empty() ? "" : "  ",
                   "shard-",
                   shard,
                   " ",
                   number(staleness.mean, "%.2f"),
                   "/",
                   staleness.max);
  }
  return text + "  (mean/max, versions)";
}

void print_summary(Console& console, const RunResult& result, const std::string& directory) {
  const Summary& s = result.summary;
  std::vector<std::vector<std::string>> rows;
  rows.push_back({result.exit_code == 0 ? "done" : "ended",
                  concat(grouped(s.updates),
                         " updates, ",
                         number(s.epochs, "%.4g"),
                         " epochs, ",
                         grouped(s.samples),
                         " samples in ",
                         duration(s.seconds),
                         " (",
                         s.clock,
                         " clock): ",
                         short_number(s.samples_per_second),
                         " samples/s")});
  rows.push_back({"loss",
                  "train " + (s.updates == 0 ? "none" : number(s.train_loss)) +
                      (s.test_loss ? "  test " + number(*s.test_loss) : "")});
  if (s.test_accuracy) {
    rows.push_back({"accuracy", number(100 * *s.test_accuracy, "%.2f %%") + " of the test data"});
  }
  rows.push_back({"staleness", staleness_text(s)});
  if (!s.weights_sha256.empty()) {
    rows.push_back({"weights", "sha256 " + s.weights_sha256});
  }
  if (!directory.empty()) {
    rows.push_back({"files", directory});
  }
  console.out << table(rows) << std::flush;
}

int run(Console& console, const Arguments& arguments, bool virtual_clock) {
  if (arguments.list) {
    return list_presets(console);
  }
  log::set_level(arguments.verbose ? log::Level::info : log::Level::warn);
  std::error_code code;
  if (!arguments.out.empty() && std::filesystem::exists(arguments.out, code)) {
    // Told before the data is read; made only when everything else is known to be right.
    return fail(console,
                {ErrorKind::usage,
                 concat("--out: ",
                        arguments.out,
                        " exists already; name a new folder, a run never overwrites another")});
  }
  auto blueprint = make_blueprint(arguments.experiment);
  if (!blueprint) {
    return fail(console, blueprint.error());
  }
  if (!arguments.quiet) {
    console.err << describe_briefly(*blueprint);
    if (arguments.out.empty()) {
      console.err << "no files are kept (--out DIR keeps them)\n";
    }
  }
  RunOptions options{.virtual_clock = virtual_clock,
                     .directory = {},
                     .progress = arguments.quiet ? nullptr : &console.err,
                     .terminal = console.terminal,
                     .interrupts = {},
                     .tee = nullptr};
  if (!arguments.out.empty()) {
    options.directory = arguments.out;
  }
  const Interrupts interrupts;
  options.interrupts = [&console, told = 0]() mutable {
    const int asked = Interrupts::count();
    if (asked == 1 && told == 0) {
      console.err << (console.terminal ? "\n" : "")
                  << "interrupted: what was admitted is finished first; once more ends at once"
                  << std::endl;
    }
    told = asked;
    return asked;
  };
  auto result = run_experiment(*blueprint, options);
  if (!result) {
    return fail(console, result.error());
  }
  if (!result->cause.empty()) {
    console.err << "troupe: " << result->cause << std::endl;
  }
  if (result->exit_code == static_cast<int>(ErrorKind::diverged)) {
    console.err << "hint: a smaller optimizer.learning_rate, some optimizer.warm_up, or "
                   "pipeline.weights=stash or spectrain; "
                   "stop.allow_divergence=true makes this an ordinary end"
                << std::endl;
  }
  print_summary(console, *result, arguments.out);
  return result->exit_code;
}

VerbAction declare(CLI::App& app, bool virtual_clock) {
  auto arguments = std::make_shared<Arguments>();
  add_experiment_arguments(app, arguments->experiment);
  const CLI::Option* out =
      app.add_option(
             "--out",
             arguments->out,
             "folder for the run's files; made here, must not exist (default: none are kept)")
          ->type_name("DIR");
  app.add_flag("--quiet,-q", arguments->quiet, "no progress on stderr");
  app.add_flag("--verbose,-v", arguments->verbose, "log the run's life cycle on stderr");
  app.add_flag("--list", arguments->list, "show the presets and end");
  add_experiment_footer(app);
  return [arguments, out, virtual_clock](Console& console) {
    if (out->count() > 0 && arguments->out.empty()) {
      return fail(console, {ErrorKind::usage, "--out: the name of the folder is empty"});
    }
    return run(console, *arguments, virtual_clock);
  };
}

}  // namespace

VerbAction declare_run(CLI::App& app) {
  return declare(app, false);
}

VerbAction declare_sim(CLI::App& app) {
  return declare(app, true);
}

}  // namespace troupe
