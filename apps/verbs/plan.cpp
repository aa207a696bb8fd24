// troupe plan: what a run would do, without running it.
#include "apps/plan.hpp"

#include "apps/verbs/verb.hpp"

#include <CLI/CLI.hpp>

#include <memory>
#include <ostream>

namespace troupe {

VerbAction declare_plan(CLI::App& app) {
  auto arguments = std::make_shared<ExperimentArguments>();
  add_experiment_arguments(app, *arguments);
  add_experiment_footer(app);
  return [arguments](Console& console) {
    auto blueprint = make_blueprint(*arguments);
    if (!blueprint) {
      return fail(console, blueprint.error());
    }
    console.out << describe(*blueprint);
    return 0;
  };
}

}  // namespace troupe
