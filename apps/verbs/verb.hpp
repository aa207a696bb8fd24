// The verbs of the command line. Each declares its options and says what to do with them;
// command_line.cpp has the table.
#pragma once

#include "apps/cli/options.hpp"
#include "kernels/result.hpp"

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

struct Blueprint;

struct Console {
  std::ostream& out;                             // results
  std::ostream& err;                             // progress and errors
  bool terminal = false;                         // err is one, so that a line may be rewritten
  std::function<void(std::string_view)> line{};  // as RunOptions::line, of run and sim
  /// Called by `node` in the process that plays a visitor's run, before it makes anything. Error: why it cannot.
  std::function<Result<void>()> prepare{};
};

/// What a verb does once its options are parsed. Returns the exit code; an error is told by the caller.
using VerbAction = std::function<Result<int>(Console&)>;

/// A verb: what it takes, and what it does. The action owns what the options point to.
struct Command {
  std::vector<CommandOption> options;
  VerbAction action;
  bool takes_experiment = false;  // so that its help leads to presets and keys
};

Command declare_run();
Command declare_sim();
Command declare_replay();
Command declare_compare();
Command declare_board();
Command declare_plan();
Command declare_runs();
Command declare_plot();
Command declare_trace();
Command declare_watch();
Command declare_top();
Command declare_report();
Command declare_config();
Command declare_ckpt();
Command declare_eval();
Command declare_predict();
Command declare_sample();
Command declare_sharpness();
Command declare_explain();
Command declare_conformance();
Command declare_data();
Command declare_doctor();
Command declare_bench();
Command declare_keys();
Command declare_node();

// -- what several verbs share ---------------------------------------------------------------------

/// What is wrong with --out "".
constexpr const char* kEmptyFolder = "the name of the folder is empty";

/// EXPERIMENT, --set, and short forms of the keys that are set most often.
struct ExperimentArguments {
  std::string experiment;
  std::vector<std::string> assignments{};
  std::optional<std::int64_t> seed{};
  std::optional<double> epochs{};
  std::optional<double> learning_rate{};

  /// All that is set, as of --set; the short forms are the last.
  std::vector<std::string> settings() const;

  /// What other names, of papers, were taken for, a line each, with `before` in front of it.
  std::string taken(const std::string& before = "") const;

  /// The experiment, or the preset that is meant where none is named.
  std::string named() const;
};

/// EXPERIMENT, --set and the short forms, followed by `more`.
std::vector<CommandOption> experiment_options(ExperimentArguments& arguments,
                                              const std::vector<CommandOption>& more);
/// --set, with its `doc`, and the short forms.
std::vector<CommandOption> set_options(ExperimentArguments& arguments, const std::string& doc);
/// "--set PATH=VALUE", with its `doc`.
CommandOption set_option(std::vector<std::string>& assignments, const std::string& doc);

/// Of the first phase, where there are several.
Result<Blueprint> make_blueprint(const ExperimentArguments& arguments);

/// "troupe: sentence" on err; the exit code of the error's kind.
int fail(Console& console, const Error& error);

/// The same, with `before` in front of what an error says.
template <class T>
Result<T> prefixed(const std::string& before, Result<T> result) {
  return result ? std::move(result) : Error{result.error().kind, before + result.error().message};
}

/// Error (usage) where there is a file of that name: "BEFOREPATH exists already; name a new file".
Result<void> check_is_new(const std::string& before, const std::string& path);

/// Puts the text on out; 0.
Result<int> tell(Console& console, const Result<std::string>& text);

}  // namespace troupe
