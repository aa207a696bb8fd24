// troupe config: an experiment as it would be run, and whether it could be.
#include "apps/plan/plan.hpp"
#include "apps/presets/presets.hpp"
#include "apps/run/phases.hpp"
#include "apps/verbs/verb.hpp"
#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/record/json.hpp"

#include <memory>
#include <ostream>

namespace troupe {
namespace {

struct ConfigArguments {
  std::string what;
  ExperimentArguments experiment;
  bool json = false;
};

Result<int> print(Console& console, const ConfigArguments& arguments) {
  auto experiment =
      load_experiment(arguments.experiment.experiment, arguments.experiment.settings());
  TROUPE_TRY(experiment);
  const std::string text = arguments.json
                               ? print_experiment_json(*experiment)
                               : arguments.experiment.taken("# ") + print_experiment(*experiment);
  console.out << text << (text.ends_with('\n') ? "" : "\n");
  return 0;
}

/// On which clock alone the experiment can be run, and why; "" where on both. Error where on none.
/// `told`: what is said of the data.
Result<std::string> check(const ExperimentArguments& arguments, std::string& told) {
  const auto experiment = load_experiment(arguments.experiment, arguments.settings());
  TROUPE_TRY(experiment);
  const auto phases = make_phases(*experiment, {}, true);
  TROUPE_TRY(phases);
  for (const Phase& phase : *phases) {
    told += told.empty() ? data_told(phase.blueprint, true) : "";
  }
  const Result<void> real = check_clock(*phases, false);
  const Result<void> simulated = check_clock(*phases, true);
  if (!real && !simulated) {
    return real.error();
  }
  TROUPE_TRY(check_memory(*phases));
  for (const Phase& phase : *phases) {
    if (!phase.missing.empty()) {
      return Error{ErrorKind::data, phase.missing};  // all else is right
    }
  }
  return !real        ? "by troupe sim only; " + real.error().message
         : !simulated ? "by troupe run only; " + simulated.error().message
                      : std::string();
}

Result<int> validate(Console& console, const ConfigArguments& arguments) {
  std::string told;
  const auto checked = check(arguments.experiment, told);
  if (arguments.json) {
    JsonObject verdict;
    verdict.add("valid", static_cast<bool>(checked));
    if (!checked) {
      verdict.add("error", checked.error().message);
    } else if (!checked->empty()) {
      verdict.add("limit", *checked);
    }
    console.out << verdict.text() << '\n';
    return checked ? 0 : static_cast<int>(checked.error().kind);
  }
  TROUPE_TRY(checked);
  console.out << "ok: " << arguments.experiment.named() << " can be run"
              << (checked->empty() ? "" : " ") << *checked << '\n'
              << told;
  return 0;
}

Result<int> config(Console& console, const ConfigArguments& arguments) {
  if (arguments.what == "print") {
    return print(console, arguments);
  }
  if (arguments.what == "validate") {
    return validate(console, arguments);
  }
  const std::string near = nearest(arguments.what, {"print", "validate"});
  return Error{ErrorKind::usage,
               arguments.what.empty() ? "config: say print or validate"
                                      : concat("config: \"",
                                               arguments.what,
                                               "\" is neither print nor validate",
                                               near.empty() ? "" : ", did you mean " + near + "?")};
}

}  // namespace

Command declare_config() {
  auto arguments = std::make_shared<ConfigArguments>();
  Command command{
      .options = experiment_options(
          arguments->experiment,
          {{.names = "--json", .value = &arguments->json, .doc = "JSON instead of textproto"}}),
      .action = [arguments](Console& console) { return config(console, *arguments); },
      .takes_experiment = true};
  command.options.insert(command.options.begin(),
                         {.names = "WHAT",
                          .value = &arguments->what,
                          .doc = "print: the experiment with every default filled in; validate: "
                                 "whether it can be run"});
  return command;
}

}  // namespace troupe
