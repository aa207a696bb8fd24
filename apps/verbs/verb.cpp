#include "apps/verbs/verb.hpp"

#include "apps/phases.hpp"
#include "apps/presets.hpp"
#include "apps/registered.hpp"
#include "apps/text.hpp"
#include "messages/experiment.hpp"

#include <ostream>

namespace troupe {

std::vector<CommandOption> experiment_options(ExperimentArguments& arguments,
                                              const std::vector<CommandOption>& more) {
  arguments.experiment = kDefaultPreset;
  std::vector<CommandOption> options{
      {.names = "EXPERIMENT",
       .value = &arguments.experiment,
       .doc = concat(
           "a preset's name, or a .textproto or .json file (default: ", kDefaultPreset, ")")},
      set_option(arguments.assignments,
                 "path=value: sets a key, or selects a choice with its defaults; repeatable")};
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

CommandOption set_option(std::vector<std::string>& assignments, const std::string& doc) {
  return {.names = "--set", .value = &assignments, .doc = doc, .type = "PATH=VALUE"};
}

std::string experiment_footer() {
  std::vector<std::vector<std::string>> rows;
  for (const Preset& preset : presets()) {
    rows.push_back({std::string(preset.name), std::string(preset.summary())});
  }
  return "Presets:\n" + table(rows, "  ") + "\nKeys of an experiment, for files and --set:\n" +
         experiment_help() + registered_help();
}

Result<Blueprint> make_blueprint(const ExperimentArguments& arguments) {
  auto experiment = load_experiment(arguments.experiment, arguments.assignments);
  if (!experiment) {
    return experiment.error();
  }
  const auto phases = phases_of(*experiment);
  return phases ? make_blueprint(phases->front()) : Result<Blueprint>(phases.error());
}

int fail(Console& console, const Error& error) {
  console.err << "troupe: " << error.message << std::endl;
  return static_cast<int>(error.kind);
}

}  // namespace troupe
