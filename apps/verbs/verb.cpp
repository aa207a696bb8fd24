#include "apps/verbs/verb.hpp"

#include "apps/presets/presets.hpp"
#include "apps/run/phases.hpp"
#include "experiment.pb.h"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "messages/other_names.hpp"
#include "runtime/record/json.hpp"

#include <cmath>
#include <filesystem>
#include <ostream>

namespace troupe {

std::vector<CommandOption> set_options(ExperimentArguments& arguments, const std::string& doc) {
  return {
      set_option(arguments.assignments, doc),
      {.names = "--seed", .value = &arguments.seed, .doc = "short for --set seed=N", .type = "N"},
      {.names = "--epochs",
       .value = &arguments.epochs,
       .doc = "short for --set stop.epochs=N",
       .type = "N"},
      {.names = "--lr",
       .value = &arguments.learning_rate,
       .doc = "short for --set optimizer.learning_rate=X",
       .type = "X"}};
}

std::vector<CommandOption> experiment_options(ExperimentArguments& arguments,
                                              const std::vector<CommandOption>& more) {
  std::vector<CommandOption> options{
      {.names = "EXPERIMENT",
       .value = &arguments.experiment,
       .doc = fill_in("a preset, or an experiment's file (default: {}); .textproto or .json; where "
                      "data.csv or data.arrays is set, {}, and where data.folder is, {}",
                      kDefaultPreset,
                      kOwnDataPreset,
                      kOwnImagesPreset)}};
  const auto set =
      set_options(arguments, "sets a key, or selects a choice with its defaults; repeatable");
  options.insert(options.end(), set.begin(), set.end());
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

namespace {

/// Reads back as the same number; what is none is left for the key to refuse.
std::string as_value(double number) {
  return std::isfinite(number) ? json_number(number) : concat(number);
}

}  // namespace

std::vector<std::string> ExperimentArguments::settings() const {
  std::vector<std::string> all = assignments;
  if (seed) {
    all.push_back(concat("seed=", *seed));
  }
  if (epochs) {
    all.push_back("stop.epochs=" + as_value(*epochs));
  }
  if (learning_rate) {
    all.push_back("optimizer.learning_rate=" + as_value(*learning_rate));
  }
  return all;
}

std::string ExperimentArguments::taken(const std::string& before) const {
  std::string text;
  for (const std::string& setting : settings()) {
    const std::string what = taken_for(setting);
    text += what.empty() ? "" : before + what + '\n';
  }
  return text;
}

std::string ExperimentArguments::named() const {
  return experiment.empty() ? default_preset(settings()) : experiment;
}

CommandOption set_option(std::vector<std::string>& assignments, const std::string& doc) {
  return {.names = "--set", .value = &assignments, .doc = doc, .type = "PATH=VALUE"};
}

Result<Blueprint> make_blueprint(const ExperimentArguments& arguments) {
  auto experiment = load_experiment(arguments.experiment, arguments.settings());
  TROUPE_TRY(experiment);
  const auto phases = phases_of(*experiment);
  return phases ? make_blueprint(phases->front()) : Result<Blueprint>(phases.error());
}

int fail(Console& console, const Error& error) {
  console.err << "troupe: " << error.message << '\n';
  return static_cast<int>(error.kind);
}

Result<void> check_is_new(const std::string& before, const std::string& path) {
  std::error_code code;
  return std::filesystem::exists(std::filesystem::symlink_status(path, code))
             ? usage_error("{}{} exists already; name a new file", before, path)
             : Result<void>();
}

Result<int> tell(Console& console, const Result<std::string>& text) {
  TROUPE_TRY(text);
  console.out << *text;
  return 0;
}

}  // namespace troupe
