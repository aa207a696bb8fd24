// troupe run, troupe sim: the same experiment on the real and on the virtual clock.
#include "apps/run/run.hpp"

#include "apps/cli/interrupts.hpp"
#include "apps/cli/text.hpp"
#include "apps/plan/plan.hpp"
#include "apps/plan/room.hpp"
#include "apps/presets/presets.hpp"
#include "apps/run/phases.hpp"
#include "apps/run/processes.hpp"
#include "apps/run/recut.hpp"
#include "apps/run/run_folder.hpp"
#include "apps/verbs/endings.hpp"
#include "apps/verbs/resume.hpp"
#include "apps/verbs/verb.hpp"
#include "experiment.pb.h"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "runtime/record/output_file.hpp"
#include "runtime/system/log.hpp"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <atomic>
#include <memory>
#include <optional>
#include <ostream>

namespace troupe {
namespace {

struct RunArguments {
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
  console.out << table(rows, "", kPageWidth);
  return 0;
}

Result<int> run_one_by_one(Console& console,
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
                                        console.out << (i > 0 ? "\n" : "") << headings[i] << '\n'
                                                    << std::flush;
                                        if (options.progress) {
                                          console.err << briefs[i];
                                        }
                                      },
                                  .ended =
                                      [&](std::size_t i, const RunResult& ended) {
                                        print_summary(console, ended, folders[i]);
                                      }});
  TROUPE_TRY(result);
  const std::size_t last = result->phases.size() - 1;  // one has begun at least
  print_cause(
      console, result->exit_code, result->cause, experiments[last], result->phases[last].summary);
  if (result->phases.size() < count) {
    console.err << "troupe: the run ends with phase " << result->phases.size() << " of " << count
                << '\n'
                << std::flush;
  }
  print_phases(console, *result, options.directory ? options.directory->string() : "");
  return result->exit_code;
}

/// The run of a checkpoint goes on, and not exactly as it was begun.
bool on_another_topology(const RunArguments& arguments) {
  return !arguments.resume.empty() && !arguments.experiment.settings().empty();
}

/// The checkpoint that --resume names. Error (usage) where something else is asked for, too.
Result<FoundCheckpoint> asked_checkpoint(const RunArguments& arguments, bool virtual_clock) {
  if (!arguments.experiment.experiment.empty()) {
    return Error{ErrorKind::usage,
                 "--resume: a run goes on with its own experiment; leave out EXPERIMENT (--set "
                 "changes its topology)"};
  }
  if (!arguments.out.empty() && !on_another_topology(arguments)) {
    return Error{ErrorKind::usage,
                 "--resume: a run goes on as it was begun, in its own folder; leave out --out, or "
                 "name another topology with --set"};
  }
  return checkpoint_to_resume(arguments.resume, virtual_clock);
}

/// What is to be run: from the command line, or from a checkpoint.
Result<proto::Experiment> experiment_of(const RunArguments& arguments,
                                        const FoundCheckpoint* resume) {
  if (!resume) {
    return load_experiment(arguments.experiment.named(), arguments.experiment.settings());
  }
  auto experiment = parse_experiment(resume->checkpoint.experiment, resume->path.string());
  if (experiment) {
    TROUPE_TRY(resolve(*experiment));
    experiment->clear_start_from();  // the weights are in the checkpoint
    experiment->clear_start_from_skip();
  }
  return experiment;
}

/// The experiment that --set makes of the checkpoint's, whose state is made anew for it.
Result<proto::Experiment> recut_experiment(Console& console,
                                           const RunArguments& arguments,
                                           FoundCheckpoint& resume) {
  auto made = recut(resume, arguments.experiment.settings());
  TROUPE_TRY(made);
  console.err << made->sentence << '\n' << std::flush;
  resume.checkpoint = std::move(made->checkpoint);
  return std::move(made->experiment);
}

/// "flowers" of data.csv.path=my/flowers.csv, "mnist" of data that has no path.
std::string name_of_data(const proto::Data& data) {
  const auto* const choices = data.GetDescriptor()->oneof_decl(0);
  const auto* const chosen = data.GetReflection()->GetOneofFieldDescriptor(data, choices);
  if (!chosen) {
    return "";
  }
  const auto* const path = chosen->message_type()->FindFieldByName("path");
  if (!path || path->cpp_type() != path->CPPTYPE_STRING) {
    return chosen->name();
  }
  const auto& options = data.GetReflection()->GetMessage(data, chosen);
  const std::filesystem::path file = options.GetReflection()->GetString(options, path);
  const std::string stem = (file.has_filename() ? file : file.parent_path()).stem().string();
  return stem.empty() || stem == "." || stem == ".." ? chosen->name() : stem;
}

/// What the folder of the run is named after: the experiment, or where that has no name of its own its file. The preset
/// that nobody has asked for is named after glyphs, and gives no name to a run on other data.
std::string name_for_folder(const RunArguments& arguments, const proto::Experiment& experiment) {
  constexpr const char* kNoName = "experiment";  // what one that is not named is called
  const std::string named = arguments.experiment.named();
  if (arguments.experiment.experiment.empty() && experiment.name() == named &&
      !experiment.data().has_glyphs()) {
    const std::string name = name_of_data(experiment.data());
    return name.empty() ? named : name;
  }
  return experiment.name().empty() || experiment.name() == kNoName ? named : experiment.name();
}

int run_single(Console& console,
               const RunArguments& arguments,
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
  print_summary(console,
                *result,
                options.directory ? options.directory->string() : "",
                fit_text(blueprint, result->summary.test_loss));
  const std::string hint =
      result->exit_code == 0 ? constant_hint(blueprint, result->summary) : std::string();
  if (!hint.empty()) {
    console.err << hint << '\n' << std::flush;
  }
  if (Interrupts::count() > 0 && options.directory && !checkpoints_of(*options.directory).empty()) {
    console.err << fill_in("goes on by `troupe {} --resume {}`",
                           options.virtual_clock ? "sim" : "run",
                           options.directory->string())
                << '\n'
                << std::flush;
  }
  return result->exit_code;
}

/// What other names, of papers, were taken for, and what is going to run; --quiet: only what looks wrong.
void tell_what_runs(Console& console, const RunArguments& arguments, const Blueprint* only) {
  console.err << (arguments.quiet ? "" : arguments.experiment.taken());
  if (only && arguments.quiet) {
    console.err << warnings(*only);
  } else if (only) {
    console.err << describe_briefly(*only) << data_told(*only, false);
  }
}

/// Whether the disk has room for what the run keeps; what one that is resumed keeps has its room already.
Result<void> check_disk(const std::vector<Phase>& phases, const RunOptions& options) {
  const bool goes_on = options.resume && !options.new_folder;
  for (const Phase& phase : phases) {
    TROUPE_TRY(options.directory && !goes_on ? check_disk(phase.blueprint, *options.directory)
                                             : Result<void>());
  }
  return {};
}

/// Where the files go; `numbered`: a folder that nobody has named.
Result<void> choose_folder(Console& console,
                           const RunArguments& arguments,
                           const proto::Experiment& experiment,
                           const FoundCheckpoint* resume,
                           RunOptions& options,
                           std::optional<RunFolder>& numbered) {
  options.resume = resume ? &resume->checkpoint : nullptr;
  options.new_folder = on_another_topology(arguments);
  if (resume && !options.new_folder) {
    options.directory = run_folder(resume->path);
  } else if (!arguments.out.empty() && arguments.out != kKeepNothing) {
    options.directory = arguments.out;
    if (auto named = RunFolder::named(folder_of_runs(), arguments.out)) {
      numbered.emplace(*std::move(named));
    }
  } else if (arguments.out.empty() && runs_are_kept()) {
    auto made = RunFolder::make(folder_of_runs(), name_for_folder(arguments, experiment));
    TROUPE_TRY(made);
    numbered.emplace(*std::move(made));
    options.directory = numbered->path();
    options.directory_is_made = true;
    if (!arguments.quiet) {
      console.err << "files are kept in " << numbered->path().string()
                  << " (--out DIR: elsewhere, --out none: nowhere)\n";
    }
  }
  return {};
}

/// How many interrupts there were; at the first it says what comes, once for all copies. From every thread.
std::function<int()> told_interrupts(Console& console) {
  return [&console, told = std::make_shared<std::atomic<bool>>(false)] {
    const int asked = Interrupts::count();
    if (asked == 1 && !told->exchange(true)) {
      console.err
          << (console.terminal ? "\n" : "")
          << "interrupted: the mini-batches under way are finished first; Ctrl-C again ends at once"
          << '\n'
          << std::flush;
    }
    return asked;
  };
}

Result<int> run(Console& console, RunArguments arguments, bool virtual_clock) {
  if (arguments.list) {
    return list_presets(console);
  }
  log::set_level(arguments.verbose ? log::Level::info : log::Level::warn);
  const auto players = players_of(arguments.players);
  TROUPE_TRY(players);
  if (players->ranks && players->ranks->rank > 0) {
    return play_as_rank(console, *players);
  }
  std::optional<FoundCheckpoint> resume;
  std::error_code code;
  if (!arguments.resume.empty()) {
    auto found = asked_checkpoint(arguments, virtual_clock);
    TROUPE_TRY(found);
    resume = *std::move(found);
    tell_resumed(console, *resume);
    if (!arguments.out.empty() && arguments.out != kKeepNothing) {
      arguments.out = std::filesystem::absolute(arguments.out, code).string();
    }
    // Where paths of data begin. Where that is no more, what is missing is told.
    std::filesystem::current_path(resume->checkpoint.folder, code);
  }
  if (arguments.out != kKeepNothing && std::filesystem::exists(arguments.out, code) &&
      !is_empty_folder(arguments.out)) {
    // Told before the data is read; made only when everything else is known to be right.
    return usage_error(
        "--out: {} exists already; name a new folder, a run never overwrites another",
        arguments.out);
  }
  const auto experiment = on_another_topology(arguments)
                              ? recut_experiment(console, arguments, *resume)
                              : experiment_of(arguments, resume ? &*resume : nullptr);
  TROUPE_TRY(experiment);
  TROUPE_TRY(check_processes(*experiment, players->processes));
  auto phases = make_phases(*experiment, virtual_clock);
  TROUPE_TRY(phases);
  if (players->hosts.empty() && !players->ranks) {
    TROUPE_TRY(check_memory(*phases, players->processes));
  }
  tell_what_runs(
      console, arguments, experiment->phases().empty() ? &phases->front().blueprint : nullptr);
  RunOptions options{.virtual_clock = virtual_clock,
                     .directory = {},
                     .progress = arguments.quiet ? nullptr : &console.err,
                     .terminal = console.terminal,
                     .interrupts = {},
                     .tee = nullptr};
  std::optional<RunFolder> numbered;
  TROUPE_TRY(choose_folder(
      console, arguments, *experiment, resume ? &*resume : nullptr, options, numbered));
  TROUPE_TRY(check_disk(*phases, options));
  const Interrupts interrupts;
  options.interrupts = told_interrupts(console);
  options.line = console.line;
  if (!experiment->phases().empty()) {
    return run_one_by_one(console, *experiment, *std::move(phases), options);
  }
  return run_single(console, arguments, *players, phases->front().blueprint, options);
}

Command declare(bool virtual_clock) {
  auto arguments = std::make_shared<RunArguments>();
  Command command{
      .options = experiment_options(
          arguments->experiment,
          {{.names = "--out",
            .value = &arguments->out,
            .doc = "folder for the run's files (default: runs/NAME-N); made here, "
                   "or empty; none: keep nothing",
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
      .takes_experiment = true};
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
