// troupe run, troupe sim: the same experiment on the real and on the virtual clock.
#include "apps/run.hpp"

#include "apps/divergence_hint.hpp"
#include "apps/interrupts.hpp"
#include "apps/phases.hpp"
#include "apps/plan.hpp"
#include "apps/presets.hpp"
#include "apps/processes.hpp"
#include "apps/text.hpp"
#include "apps/verbs/resume.hpp"
#include "apps/verbs/verb.hpp"
#include "messages/experiment.hpp"
#include "runtime/record/progress.hpp"
#include "runtime/system/log.hpp"

#include <memory>
#include <optional>
#include <ostream>

namespace troupe {
namespace {

struct Arguments {
  ExperimentArguments experiment;
  std::string out;
  std::string resume;
  PlayerArguments players;
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

/// "3,125 applied, 3 in flight, 0 dropped; 331 MB moved", over all shards.
std::string servers_text(const Summary& summary) {
  if (summary.servers.empty()) {
    return "";
  }
  std::int64_t applied = 0;
  std::int64_t dropped = 0;
  std::int64_t in_flight = 0;
  for (const auto& [shard, server] : summary.servers) {
    applied += server.applied;
    dropped += server.dropped;
    in_flight += server.in_flight;
  }
  return concat(grouped(applied),
                " pushes applied, ",
                grouped(dropped),
                " dropped, ",
                grouped(in_flight),
                " in flight at the end; ",
                mebibytes(static_cast<double>(summary.bytes_sent)),
                " moved");
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

/// "busy 88.1 %; idle for want of data 0.0 %, activation 2.1 %, ...": means over the stages; the
/// reasons where all stages tell them.
std::string stages_text(const Summary& summary) {
  const auto stages = static_cast<double>(summary.busy.size());
  const auto percent = [&](double sum) {
    return number(100 * sum / stages, "%.1f %%");
  };
  double busy = 0;
  for (const auto& [stage, share] : summary.busy) {
    busy += share;
  }
  std::string text = "busy " + percent(busy);
  for (std::size_t want = 0; want < kWants.size(); ++want) {
    double idle = 0;
    for (const auto& [stage, shares] : summary.idle) {
      idle += shares[want];
    }
    if (summary.idle.size() == summary.busy.size()) {
      text += concat(want == 0 ? "; idle for want of " : ", ", kWants[want], ' ', percent(idle));
    }
  }
  return text;
}

void print_cause(Console& console,
                 int exit_code,
                 const std::string& cause,
                 const proto::Experiment& experiment,
                 const Summary& summary) {
  if (!cause.empty()) {
    console.err << "troupe: " << cause << std::endl;
  }
  if (exit_code == static_cast<int>(ErrorKind::diverged)) {
    console.err << divergence_hint(experiment, staleness_text(summary)) << std::endl;
  }
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
  if (!s.busy.empty()) {
    rows.push_back({"stages", stages_text(s)});
  }
  if (const std::string servers = servers_text(s); !servers.empty()) {
    rows.push_back({"servers", servers});
  }
  for (const std::string& lost : s.lost) {
    rows.push_back({"lost", lost + "; the others went on"});
  }
  if (!s.weights_sha256.empty()) {
    rows.push_back({"weights", "sha256 " + s.weights_sha256});
  }
  if (!directory.empty()) {
    rows.push_back({"files", directory});
  }
  console.out << table(rows) << std::flush;
}

/// A line a phase.
void print_phases(Console& console, const PhasesResult& result, const std::string& directory) {
  std::vector<std::vector<std::string>> rows{
      {"phase", "updates", "epochs", "seconds", "train loss", "test loss", "accuracy"}};
  for (const PhaseSummary& phase : result.phases) {
    const Summary& s = phase.summary;
    rows.push_back({phase.name,
                    grouped(s.updates),
                    number(s.epochs, "%.4g"),
                    number(s.seconds, "%.1f"),
                    number(s.train_loss),
                    s.test_loss ? number(*s.test_loss) : "",
                    s.test_accuracy ? number(100 * *s.test_accuracy, "%.2f %%") : ""});
  }
  console.out << "\nphases\n" << table(rows, "  ");
  if (!directory.empty()) {
    console.out << table({{"files", directory}});
  }
  console.out << std::flush;
}

int run_one_by_one(Console& console,
                   const proto::Experiment& whole,
                   std::vector<Phase> phases,
                   const RunOptions& options) {
  const std::size_t count = phases.size();
  std::vector<std::string> briefs;
  std::vector<std::string> headings;
  std::vector<std::string> folders;
  std::vector<proto::Experiment> experiments;
  for (std::size_t i = 0; i < count; ++i) {
    experiments.push_back(phases[i].blueprint.experiment);
    briefs.push_back(describe_briefly(phases[i].blueprint));
    headings.push_back(concat("phase ", i + 1, " of ", count, ": ", phases[i].name));
    folders.push_back(options.directory ? (*options.directory / phases[i].folder).string() : "");
  }
  const auto result = run_phases(whole,
                                 std::move(phases),
                                 options,
                                 {.begins =
                                      [&](std::size_t i) {
                                        console.out << (i > 0 ? "\n" : "") << headings[i]
                                                    << std::endl;
                                        if (options.progress) {
                                          console.err << briefs[i];
                                        }
                                      },
                                  .ended =
                                      [&](std::size_t i, const RunResult& ended) {
                                        print_summary(console, ended, folders[i]);
                                      }});
  if (!result) {
    return fail(console, result.error());
  }
  const std::size_t last = result->phases.size() - 1;  // one has begun at least
  print_cause(
      console, result->exit_code, result->cause, experiments[last], result->phases[last].summary);
  if (result->phases.size() < count) {
    console.err << "troupe: the run ends with phase " << result->phases.size() << " of " << count
                << std::endl;
  }
  print_phases(console, *result, options.directory ? options.directory->string() : "");
  return result->exit_code;
}

/// The checkpoint that --resume names. Error (usage) where something else is asked for, too.
Result<FoundCheckpoint> asked_checkpoint(const Arguments& arguments, bool virtual_clock) {
  if (!arguments.out.empty() || !arguments.experiment.assignments.empty() ||
      !arguments.experiment.experiment.empty()) {
    return Error{
        ErrorKind::usage,
        "--resume: a run goes on as it was begun, in its own folder; leave out EXPERIMENT, "
        "--set and --out"};
  }
  return checkpoint_to_resume(arguments.resume, virtual_clock);
}

/// What is to be run: from the command line, or from a checkpoint.
Result<proto::Experiment> experiment_of(const Arguments& arguments, const FoundCheckpoint* resume) {
  if (!resume) {
    const std::string& named = arguments.experiment.experiment;
    return load_experiment(named.empty() ? std::string(kDefaultPreset) : named,
                           arguments.experiment.assignments);
  }
  auto experiment = parse_experiment(resume->checkpoint.experiment, resume->path.string());
  if (experiment) {
    if (auto resolved = resolve(*experiment); !resolved) {
      return resolved.error();
    }
    experiment->clear_start_from();  // the weights are in the checkpoint
  }
  return experiment;
}

int run_single(Console& console,
               const Arguments& arguments,
               const Players& players,
               const Blueprint& blueprint,
               const RunOptions& options) {
  auto result =
      players.processes > 1
          ? run_in_processes(blueprint, players, options, arguments.quiet ? nullptr : &console.err)
          : run_experiment(blueprint, options);
  if (!result) {
    const int code = fail(console, result.error());
    return Interrupts::count() > 0 ? 130 : code;  // while other processes were waited for
  }
  print_cause(console, result->exit_code, result->cause, blueprint.experiment, result->summary);
  print_summary(console, *result, options.directory ? options.directory->string() : "");
  return result->exit_code;
}

int run(Console& console, const Arguments& arguments, bool virtual_clock) {
  if (arguments.list) {
    return list_presets(console);
  }
  log::set_level(arguments.verbose ? log::Level::info : log::Level::warn);
  const auto players = players_of(arguments.players);
  if (!players) {
    return fail(console, players.error());
  }
  if (players->ranks && players->ranks->rank > 0) {
    return play_as_rank(console, *players);
  }
  std::optional<FoundCheckpoint> resume;
  std::error_code code;
  if (!arguments.resume.empty()) {
    auto found = asked_checkpoint(arguments, virtual_clock);
    if (!found) {
      return fail(console, found.error());
    }
    resume = *std::move(found);
    tell_resumed(console, *resume);
    // Where paths of data begin. Where that is no more, what is missing is told.
    std::filesystem::current_path(resume->checkpoint.folder, code);
  }
  if (!arguments.out.empty() && std::filesystem::exists(arguments.out, code)) {
    // Told before the data is read; made only when everything else is known to be right.
    return fail(console,
                {ErrorKind::usage,
                 concat("--out: ",
                        arguments.out,
                        " exists already; name a new folder, a run never overwrites another")});
  }
  const auto experiment = experiment_of(arguments, resume ? &*resume : nullptr);
  if (!experiment) {
    return fail(console, experiment.error());
  }
  if (auto sound = check_processes(*experiment, players->processes); !sound) {
    return fail(console, sound.error());
  }
  auto phases = make_phases(*experiment, virtual_clock);
  if (!phases) {
    return fail(console, phases.error());
  }
  if (!arguments.quiet) {
    if (experiment->phases().empty()) {
      console.err << describe_briefly(phases->front().blueprint);
    }
    if (arguments.out.empty() && !resume) {
      console.err << "no files are kept (--out DIR keeps them)\n";
    }
  }
  RunOptions options{.virtual_clock = virtual_clock,
                     .directory = {},
                     .progress = arguments.quiet ? nullptr : &console.err,
                     .terminal = console.terminal,
                     .interrupts = {},
                     .tee = nullptr};
  if (resume) {
    options.directory = run_folder(resume->path);
    options.resume = &resume->checkpoint;
  } else if (!arguments.out.empty()) {
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
  if (!experiment->phases().empty()) {
    return run_one_by_one(console, *experiment, *std::move(phases), options);
  }
  return run_single(console, arguments, *players, phases->front().blueprint, options);
}

Command declare(bool virtual_clock) {
  auto arguments = std::make_shared<Arguments>();
  Command command{
      .options = experiment_options(
          arguments->experiment,
          {{.names = "--out",
            .value = &arguments->out,
            .doc = "folder for the run's files; made here, must not exist (default: none are kept)",
            .type = "DIR",
            .refuse_empty = kEmptyFolder},
           {.names = "--resume",
            .value = &arguments->resume,
            .doc = "go on with the run in DIR, from its newest checkpoint; or DIR is a checkpoint",
            .type = "DIR",
            .refuse_empty = kEmptyFolder},
           {.names = "--quiet,-q", .value = &arguments->quiet, .doc = "no progress on stderr"},
           {.names = "--verbose,-v",
            .value = &arguments->verbose,
            .doc = "log the run's life cycle on stderr"},
           {.names = "--list", .value = &arguments->list, .doc = "show the presets and end"}}),
      .action = [arguments, virtual_clock](
                    Console& console) { return run(console, *arguments, virtual_clock); },
      .footer = experiment_footer};
  arguments->experiment.experiment.clear();  // the default is chosen where nothing is resumed
  if (!virtual_clock) {
    for (CommandOption& option : player_options(arguments->players)) {
      command.options.push_back(std::move(option));
    }
  }
  return command;
}

}  // namespace

Command declare_run() {
  return declare(false);
}

Command declare_sim() {
  return declare(true);
}

}  // namespace troupe
