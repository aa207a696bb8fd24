// troupe compare: several schemes side by side, with the same seeds, data order and budget.
#include "apps/compare/plot.hpp"
#include "apps/compare/report.hpp"
#include "apps/compare/schemes.hpp"
#include "apps/compare/trials.hpp"
#include "apps/interrupts.hpp"
#include "apps/presets.hpp"
#include "apps/run_folder.hpp"
#include "apps/text.hpp"
#include "apps/verbs/verb.hpp"
#include "runtime/record/output_file.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <ostream>
#include <thread>

namespace troupe {
namespace {

constexpr int kSeedsMax = 1000;
constexpr int kJobsMax = 1024;

struct Arguments {
  std::vector<std::string> experiments;
  std::vector<std::string> assignments;
  std::vector<std::string> varied;
  std::string clock = "virtual";
  std::string out;
  std::optional<double> target;
  int seeds = 1;
  int jobs = 0;  // 0: as many as there are cores
  bool quiet = false;
};

Result<Comparison> prepare(const Arguments& arguments) {
  Comparison c;
  c.clock = arguments.clock;
  c.seeds = arguments.seeds;
  c.target = arguments.target;
  for (const std::string& text : arguments.varied) {
    auto varied = parse_varied(text);
    if (!varied) {
      return varied.error();
    }
    c.varied.insert(c.varied.end(), varied->begin(), varied->end());
  }
  auto schemes =
      make_schemes(arguments.experiments, arguments.assignments, c.varied, c.clock == "virtual");
  if (!schemes) {
    return schemes.error();
  }
  c.schemes = *std::move(schemes);
  if (c.target && *c.target > 1 && measure_of(c.schemes.schemes) == Measure::accuracy) {
    return Error{ErrorKind::usage,
                 concat("--target: ", *c.target, " is no accuracy, which is 1 at most")};
  }
  return c;
}

int jobs_of(const Arguments& arguments, std::size_t trials) {
  if (arguments.clock == "real") {
    return 1;
  }
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int asked = arguments.jobs > 0 ? arguments.jobs : cores;
  return static_cast<int>(std::min(static_cast<std::size_t>(asked), trials));
}

/// "[3/12] weights=stash seed 1: 97.1 %, 1,404 updates, 12.5 ms".
std::string progress_line(const Comparison& c, const Trial& trial, std::size_t done) {
  const Measure measure = measure_of(c.schemes.schemes);
  std::string text = concat("[",
                            done,
                            "/",
                            c.schemes.schemes.size() * static_cast<std::size_t>(c.seeds),
                            "] ",
                            c.schemes.schemes[trial.scheme].label,
                            " seed ",
                            trial.seed,
                            ": ");
  if (trial.outcome != Outcome::finished) {
    return text + trial.cause;
  }
  if (!trial.curve.empty()) {
    const double value = measured(trial.curve.back(), measure);
    text += measure == Measure::accuracy ? percent(value) : concat("test loss ", value);
    text += ", ";
  }
  return text +
         concat(grouped(trial.summary.updates), " updates, ", duration(trial.summary.seconds));
}

Result<void> write_files(const std::filesystem::path& folder, const Comparison& c) {
  const std::string script = plot_script(c);
  for (const auto& [name, text] : {std::pair{"compare.csv", csv_text(c)},
                                   {"compare.json", json_text(c)},
                                   {"curves.csv", curves_text(c)},
                                   {kPlotScript, script}}) {
    if (!text.empty()) {
      if (auto written = write_file(folder / name, text); !written) {
        return written.error();
      }
    }
  }
  return {};
}

int exit_code(const std::vector<Trial>& trials) {
  int code = 0;
  for (const Trial& trial : trials) {
    if (trial.outcome == Outcome::interrupted) {
      return 130;
    }
    code = trial.outcome == Outcome::failed ? trial.exit_code : code;
  }
  return code;
}

std::string plural(std::size_t count, const char* what) {
  return concat(count, " ", what, count == 1 ? "" : "s");
}

/// What can be told before anything is read.
Result<void> check(const Arguments& arguments) {
  std::error_code code;
  if (std::filesystem::exists(arguments.out, code)) {
    return Error{ErrorKind::usage,
                 concat("--out: ", arguments.out, " exists already; name a new folder")};
  }
  if (arguments.clock == "real" && arguments.jobs > 1) {
    return Error{ErrorKind::usage,
                 "--jobs: on the real clock one run at a time, or they would slow each other down"};
  }
  return {};
}

void announce(std::ostream& err, const Comparison& c, int jobs, const std::string& folder) {
  for (const Refused& refused : c.schemes.refused) {
    err << "refused: " << refused.label << ": " << refused.reason << '\n';
  }
  err << plural(c.schemes.schemes.size(), "scheme") << ", "
      << plural(static_cast<std::size_t>(c.seeds), "seed") << " each, on the " << c.clock
      << " clock, " << jobs << " at once; files go to " << folder << std::endl;
}

void run_all(Console& console, Comparison& c, int jobs, bool quiet) {
  const Interrupts interrupts;
  std::size_t done = 0;
  TrialOptions options{.virtual_clock = c.clock == "virtual",
                       .seeds = c.seeds,
                       .jobs = jobs,
                       .interrupted = [] { return Interrupts::count() > 0; },
                       .on_finish = {}};
  if (!quiet) {
    options.on_finish = [&](const Trial& trial) {
      console.err << progress_line(c, trial, ++done) << std::endl;
    };
  }
  c.trials = run_trials(c.schemes.schemes, options);
  judge(c);
}

/// Table, files, curves. Error (lost) where a file cannot be written; curves may be missing.
Result<void> report(Console& console, const Comparison& c, const std::string& folder) {
  console.out << table_text(c) << "files    " << folder << '\n' << std::flush;
  if (auto written = write_files(folder, c); !written) {
    return written.error();
  }
  std::error_code code;
  if (!std::filesystem::exists(std::filesystem::path(folder) / kPlotScript, code)) {
    console.err << "troupe: no curves are drawn, as nothing was evaluated" << std::endl;
  } else if (auto drawn = draw(folder); !drawn) {
    console.err << "troupe: " << drawn.error().message << std::endl;
  }
  return {};
}

int compare(Console& console, Arguments arguments) {
  if (auto checked = check(arguments); !checked) {
    return fail(console, checked.error());
  }
  auto prepared = prepare(arguments);
  if (!prepared) {
    return fail(console, prepared.error());
  }
  std::optional<RunFolder> numbered;
  if (arguments.out.empty()) {
    auto made = RunFolder::make(folder_of_runs(), "compare");
    if (!made) {
      return fail(console, made.error());
    }
    numbered.emplace(*std::move(made));
    arguments.out = numbered->path().string();
  } else if (auto made = make_run_directory(arguments.out); !made) {
    return fail(console, made.error());
  }
  const int jobs = jobs_of(
      arguments, prepared->schemes.schemes.size() * static_cast<std::size_t>(arguments.seeds));
  if (!arguments.quiet) {
    announce(console.err, *prepared, jobs, arguments.out);
  }
  run_all(console, *prepared, jobs, arguments.quiet);
  const int code = exit_code(prepared->trials);
  if (code == 130) {
    console.err << "troupe: interrupted; what was finished is reported" << std::endl;
  }
  if (auto reported = report(console, *prepared, arguments.out); !reported) {
    return fail(console, reported.error());
  }
  return code;
}

}  // namespace

Command declare_compare() {
  auto arguments = std::make_shared<Arguments>();
  return {
      .options =
          {{.names = "EXPERIMENT",
            .value = &arguments->experiments,
            .doc = concat(
                "presets' names, or .textproto or .json files (default: ", kDefaultPreset, ")")},
           {.names = "--vary",
            .value = &arguments->varied,
            .doc = "path=value,value,...: a scheme for each value; repeatable: for each "
                   "combination; path=log:1e-3..1e-1:5 and path=lin:0..0.5:3 are ranges, "
                   "a+b=1+2,3+4 changes two keys together",
            .type = "PATH=VALUES"},
           set_option(arguments->assignments, "path=value, for all schemes; repeatable"),
           {.names = "--seeds",
            .value = &arguments->seeds,
            .doc = "runs of each scheme: the seed of the first experiment, that plus 1, ... "
                   "(default: 1)",
            .range = OptionRange{1, kSeedsMax}},
           {.names = "--clock",
            .value = &arguments->clock,
            .doc = "virtual or real (default: virtual)",
            .legal = {"virtual", "real"}},
           {.names = "--target",
            .value = &arguments->target,
            .doc = "also the time until the test accuracy (0..1) is reached; of networks without "
                   "classes, the test loss",
            .range = OptionRange{}},
           {.names = "--jobs",
            .value = &arguments->jobs,
            .doc = "runs at once, on the virtual clock (default: one a core)",
            .range = OptionRange{1, kJobsMax}},
           {.names = "--out",
            .value = &arguments->out,
            .doc = "folder for tables and curves; made here, must not exist (default: "
                   "runs/compare-N)",
            .type = "DIR",
            .refuse_empty = kEmptyFolder},
           {.names = "--quiet,-q", .value = &arguments->quiet, .doc = "no progress on stderr"}},
      .action =
          [arguments](Console& console) {
            if (arguments->experiments.empty()) {
              arguments->experiments.emplace_back(kDefaultPreset);
            }
            return compare(console, *arguments);
          },
      .footer = experiment_footer};
}

}  // namespace troupe
