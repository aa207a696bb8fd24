#include "apps/verbs/verb.hpp"

#include "apps/phases.hpp"
#include "apps/presets.hpp"
#include "apps/registered.hpp"
#include "apps/text.hpp"
#include "messages/experiment.hpp"

#include <CLI/CLI.hpp>

#include <ostream>

namespace troupe {

void add_experiment_arguments(CLI::App& app, ExperimentArguments& arguments) {
  arguments.experiment = kDefaultPreset;
  app.add_option(
      "EXPERIMENT",
      arguments.experiment,
      concat("a preset's name, or a .textproto or .json file (default: ", kDefaultPreset, ")"));
  app.add_option("--set",
                 arguments.assignments,
                 "path=value: sets a key, or selects a choice with its defaults; repeatable")
      ->type_name("PATH=VALUE")
      ->allow_extra_args(false);
}

void add_experiment_footer(CLI::App& app) {
  app.footer([] {
    std::vector<std::vector<std::string>> rows;
    for (const Preset& preset : presets()) {
      rows.push_back({std::string(preset.name), std::string(preset.summary())});
    }
    return "Presets:\n" + table(rows, "  ") + "\n" + registered_help() +
           "Keys of an experiment, for files and --set:\n" + experiment_help();
  });
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
