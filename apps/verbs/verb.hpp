// The verbs of the command line. Each declares its options and says what to do with them;
// command_line.cpp has the table.
#pragma once

#include "apps/topologies/pipeline.hpp"
#include "kernels/result.hpp"

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace troupe {

struct Console {
  std::ostream& out;      // results
  std::ostream& err;      // progress and errors
  bool terminal = false;  // err is one, so that a line may be rewritten
};

/// What a verb does once its options are parsed. Returns the exit code.
using VerbAction = std::function<int(Console&)>;

VerbAction declare_run(CLI::App& app);
VerbAction declare_sim(CLI::App& app);
VerbAction declare_compare(CLI::App& app);
VerbAction declare_plan(CLI::App& app);
VerbAction declare_config(CLI::App& app);
VerbAction declare_ckpt(CLI::App& app);
VerbAction declare_sample(CLI::App& app);
VerbAction declare_sharpness(CLI::App& app);
VerbAction declare_explain(CLI::App& app);
VerbAction declare_conformance(CLI::App& app);
VerbAction declare_data(CLI::App& app);
VerbAction declare_doctor(CLI::App& app);
VerbAction declare_bench(CLI::App& app);

// -- what several verbs share
// --------------------------------------------------------------------------

/// EXPERIMENT and --set.
struct ExperimentArguments {
  std::string experiment;
  std::vector<std::string> assignments;
};

void add_experiment_arguments(CLI::App& app, ExperimentArguments& arguments);
/// Presets, and every key of an experiment, below the help.
void add_experiment_footer(CLI::App& app);

/// Of the first phase, where there are several.
Result<Blueprint> make_blueprint(const ExperimentArguments& arguments);

/// "troupe: sentence" on err; the exit code of the error's kind.
int fail(Console& console, const Error& error);

}  // namespace troupe
