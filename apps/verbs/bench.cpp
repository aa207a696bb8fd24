// troupe bench: the budgets of the project on this machine.
#include "apps/bench.hpp"

#include "apps/verbs/verb.hpp"

#include <CLI/CLI.hpp>

#include <memory>

namespace troupe {

VerbAction declare_bench(CLI::App& app) {
  struct Arguments {
    std::vector<std::string> names;
    bool quick = false;
  };

  auto arguments = std::make_shared<Arguments>();
  app.add_option("ROWS", arguments->names, "which rows; all where none is named")
      ->check(CLI::IsMember(bench_names()));
  app.add_flag("--quick", arguments->quick, "a tenth of the time; noisy");
  return [arguments](Console& console) {
    return run_bench(arguments->names, arguments->quick, console.out, console.err);
  };
}

}  // namespace troupe
