// troupe compare: several schemes side by side, with the same seeds, data order and budget.
#include "apps/cli/interrupts.hpp"
#include "apps/cli/status_line.hpp"
#include "apps/compare/kept_trials.hpp"
#include "apps/compare/plot.hpp"
#include "apps/compare/report.hpp"
#include "apps/compare/schemes.hpp"
#include "apps/compare/trials.hpp"
#include "apps/compare/trials_progress.hpp"
#include "apps/plot/drawing.hpp"
#include "apps/presets/presets.hpp"
#include "apps/run/run_folder.hpp"
#include "apps/verbs/verb.hpp"
#include "experiment.pb.h"
#include "kernels/wording.hpp"
#include "runtime/record/json.hpp"
#include "runtime/record/output_file.hpp"
#include "runtime/record/sha256.hpp"
#include "runtime/record/tensorboard.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <ostream>
#include <thread>

namespace troupe {
namespace {

constexpr int kSeedsMax = 1000;
constexpr int kJobsMax = 1024;

struct CompareArguments {
  std::vector<std::string> experiments;
  ExperimentArguments set;  // for all schemes
  std::vector<std::string> varied;
  std::string clock = "virtual";
  std::string out;
  std::string size = kFigureSizes.front();
  std::optional<double> target;
  int seeds = 1;
  int jobs = 0;  // 0: as many as there are cores
  bool quiet = false;
};

Result<Comparison> prepare(const CompareArguments& arguments) {
  Comparison c;
  c.clock = arguments.clock;
  c.seeds = arguments.seeds;
  c.target = arguments.target;
  for (const std::string& text : arguments.varied) {
    auto varied = parse_varied(text);
    TROUPE_TRY(varied);
    c.varied.insert(c.varied.end(), varied->begin(), varied->end());
  }
  auto schemes =
      make_schemes(arguments.experiments, arguments.set.settings(), c.varied, c.clock == "virtual");
  TROUPE_TRY(schemes);
  c.schemes = *std::move(schemes);
  if (c.target && *c.target > 1 && measure_of(c.schemes.schemes) == Measure::accuracy) {
    return usage_error("--target: {} is no accuracy, which is 1 at most", *c.target);
  }
  return c;
}

int jobs_of(const CompareArguments& arguments, std::size_t trials) {
  if (arguments.clock == "real") {
    return 1;
  }
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int asked = arguments.jobs > 0 ? arguments.jobs : cores;
  return static_cast<int>(std::min(static_cast<std::size_t>(asked), trials));
}

Result<void> write_files(const std::filesystem::path& folder, const Comparison& c) {
  for (const auto& [name, text] : {std::pair{"compare.csv", csv_text(c)},
                                   {"compare.json", json_text(c)},
                                   {"curves.csv", curves_text(c)},
                                   {"runs.csv", runs_text(c)}}) {
    TROUPE_TRY(write_file(folder / name, text));
  }
  return {};
}

/// A folder's name for a label. What no folder may be called so is told apart by its digest.
std::string folder_name(const std::string& label) {
  constexpr std::size_t kMost = 160;
  std::string name = label.substr(0, kMost);
  std::replace(name.begin(), name.end(), '/', '_');
  Sha256 digest;
  digest.update(label.data(), label.size());
  return name == label ? name : concat(name, '-', digest.finish().substr(0, 8));
}

/// Each trial's curve and experiment as event files of TensorBoard, whose tab HPARAMS then has the comparison as a table.
Result<void> write_boards(const std::filesystem::path& folder, const Comparison& c) {
  for (const Trial& trial : c.trials) {
    const Contender& scheme = c.schemes.schemes[trial.scheme];
    proto::Experiment experiment = scheme.resolved;
    experiment.set_seed(trial.seed);
    if (trial.curve.empty() || !experiment.record().tensorboard()) {
      continue;
    }
    auto board = TensorBoard::open(folder / folder_name(concat(scheme.label, " seed=", trial.seed)),
                                   experiment,
                                   {.virtual_clock = true});
    TROUPE_TRY(board);
    for (const CurvePoint& point : trial.curve) {
      JsonObject line;
      line("kind", "evaluation")("step", point.updates)("epoch", point.epochs);
      line("seconds", point.seconds)("loss", point.test_loss)("accuracy", point.accuracy);
      line("train_loss", point.train_loss);
      (*board)->line(line.text());
    }
    (*board)->finish(trial.outcome == Outcome::finished);
    TROUPE_TRY((*board)->file().close());
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
Result<void> check(const CompareArguments& arguments) {
  std::error_code code;
  if (std::filesystem::exists(arguments.out, code) && !is_empty_folder(arguments.out) &&
      !KeptTrials::are_in(arguments.out)) {
    return usage_error(
        "--out: {} exists already and is no comparison that can be continued; name a new folder",
        arguments.out);
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
      << " clock, " << jobs << " at once; files go to " << folder << '\n'
      << std::flush;
}

/// Trials that are kept are taken, the others are made and kept in turn. Error (lost): one could not be kept.
Result<void> run_all(Console& console, Comparison& c, KeptTrials& kept, int jobs, bool quiet) {
  const Interrupts interrupts;
  StatusLine line(console.err, console.terminal);
  std::optional<TrialsProgress> progress;
  std::size_t recalled = 0;
  Result<void> outcome;
  TrialOptions options{.virtual_clock = c.clock == "virtual",
                       .seeds = c.seeds,
                       .jobs = jobs,
                       .interrupted = [] { return Interrupts::count() > 0; },
                       .on_finish = {}};
  options.recall = [&](Trial& trial) {
    const bool there = kept.recall(c.schemes.schemes[trial.scheme], trial);
    recalled += there ? 1 : 0;
    return there;
  };
  options.on_begin = [&] {
    for (const std::string& note : kept.notes()) {
      line.note(note);
    }
    if (recalled > 0 && !quiet) {
      line.note(concat(plural(recalled, "finished trial"), " taken from the folder"));
    }
    progress.emplace(line, c, recalled);
  };
  options.on_finish = [&](const Trial& trial) {
    if (trial.outcome == Outcome::finished || trial.outcome == Outcome::diverged) {
      auto written = kept.keep(c.schemes.schemes[trial.scheme], trial);
      if (!written && outcome) {  // now: there may be hours to come in which nothing is kept
        line.note(fill_in(
            "troupe: {}; the comparison goes on, but if it is interrupted it has to begin anew",
            written.error().message));
        outcome = std::move(written);
      }
    }
    if (!quiet) {
      progress->on_finish(trial);
    }
  };
  if (!quiet) {
    options.on_way = [&](const Trial& trial, const TrialStanding& standing) {
      progress->on_way(trial, standing);
    };
  }
  c.trials = run_trials(c.schemes.schemes, options);
  judge(c);
  return outcome;
}

/// Table, files, curves. Error (lost) where a file cannot be written; curves may be missing.
Result<void> report(Console& console,
                    const Comparison& c,
                    const std::string& folder,
                    FigureSize size) {
  console.out << table_text(c) << "files    " << folder << '\n' << std::flush;
  TROUPE_TRY(write_files(folder, c));
  const std::vector<Figure> figures = figures_to_draw(c, size);
  remove_figures(folder, "curves");
  remove_figures(folder, "against-");
  remove_figures(folder, "costs");
  if (figures.empty()) {
    const bool none = std::ranges::none_of(
        c.trials, [](const Trial& trial) { return trial.outcome == Outcome::finished; });
    console.err << "troupe: no curves are drawn, as "
                << (none ? "no trial has finished" : "nothing was evaluated") << '\n'
                << std::flush;
  }
  for (const Figure& figure : figures) {
    if (auto drawn = draw_figure(folder, figure); !drawn) {
      console.err << "troupe: " << drawn.error().message << '\n' << std::flush;
    }
  }
  if (auto written = write_boards(std::filesystem::path(folder) / "tensorboard", c); !written) {
    console.err << "troupe: the files for TensorBoard are not whole: " << written.error().message
                << '\n'
                << std::flush;
  }
  return {};
}

/// Where the files go: the folder that is named, made where it is not there, or the next one of runs/.
Result<void> choose_folder(CompareArguments& arguments, std::optional<RunFolder>& numbered) {
  if (arguments.out.empty()) {
    auto made = RunFolder::make(folder_of_runs(), "compare", RunFolder::Of::figures);
    TROUPE_TRY(made);
    numbered.emplace(*std::move(made));
    arguments.out = numbered->path().string();
    return {};
  }
  return KeptTrials::are_in(arguments.out) ? Result<void>() : make_run_directory(arguments.out);
}

Result<int> compare(Console& console, CompareArguments arguments) {
  TROUPE_TRY(check(arguments));
  auto prepared = prepare(arguments);
  TROUPE_TRY(prepared);
  std::optional<RunFolder> numbered;
  TROUPE_TRY(choose_folder(arguments, numbered));
  auto kept = KeptTrials::open(arguments.out,
                               prepared->schemes.schemes,
                               prepared->clock,
                               prepared->seeds,
                               maker_of_trials());
  TROUPE_TRY(kept);
  const int jobs = jobs_of(
      arguments, prepared->schemes.schemes.size() * static_cast<std::size_t>(arguments.seeds));
  if (!arguments.quiet) {
    console.err << arguments.set.taken();
    announce(console.err, *prepared, jobs, arguments.out);
  }
  const auto all_kept = run_all(console, *prepared, *kept, jobs, arguments.quiet);
  const int code = exit_code(prepared->trials);
  if (code == 130) {
    console.err
        << "troupe: interrupted; what was finished is reported; the same command with --out "
        << arguments.out << " goes on from here" << '\n'
        << std::flush;
  }
  if (auto reported = report(console, *prepared, arguments.out, figure_size_of(arguments.size));
      !reported || !all_kept) {
    return !reported ? reported.error() : all_kept.error();
  }
  return code;
}

}  // namespace

Command declare_compare() {
  auto arguments = std::make_shared<CompareArguments>();
  std::vector<CommandOption> options{
      {.names = "EXPERIMENT",
       .value = &arguments->experiments,
       .doc = fill_in("presets, or .textproto or .json files, each as LABEL=NAME where it is to be "
                      "called so (default: {}, or {} or {} for data of your own)",
                      kDefaultPreset,
                      kOwnDataPreset,
                      kOwnImagesPreset)},
      {.names = "--vary",
       .value = &arguments->varied,
       .doc = "a scheme for each value of path=value,value,...; repeatable: for each "
              "combination; path=log:1e-3..1e-1:5 and path=lin:0..0.5:3 are ranges, "
              "a+b=1+2,3+4 changes two keys together",
       .type = "PATH=VALUES"},
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
       .doc = "folder for tables, curves and trials (default: runs/compare-N); made here, or "
              "empty, or that of the same comparison, which goes on where it was ended",
       .type = "DIR",
       .refuse_empty = kEmptyFolder},
      {.names = "--size",
       .value = &arguments->size,
       .doc = "of figures: screen, a page's or a column's width (default: screen)",
       .legal = {kFigureSizes.begin(), kFigureSizes.end()}},
      {.names = "--quiet,-q", .value = &arguments->quiet, .doc = "no progress on stderr"}};
  const auto set = set_options(arguments->set, "sets a key of all schemes; repeatable");
  options.insert(options.begin() + 2, set.begin(), set.end());
  return {.options = std::move(options),
          .action =
              [arguments](Console& console) {
                if (arguments->experiments.empty()) {
                  arguments->experiments.push_back(default_preset(arguments->set.settings()));
                }
                return compare(console, *arguments);
              },
          .takes_experiment = true};
}

}  // namespace troupe
