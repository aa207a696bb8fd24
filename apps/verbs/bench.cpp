// troupe bench: the budgets of the project on this machine.
#include "apps/bench.hpp"

#include "apps/verbs/verb.hpp"

#include <CLI/CLI.hpp>

#include <memory>

namespace troupe {

VerbAction declare_bench(CLI::App& app) {
  auto options = std::make_shared<BenchOptions>();
  app.add_option("ROWS",
                 options->names,
                 "which rows; where none is named, all but gpu (training in bf16 on cuda:0), peers "
                 "(PyTorch's training steps beside ours) and gpu-peers (both)")
      ->check(CLI::IsMember(bench_names()));
  app.add_flag(
      "--quick", options->quick, "less than a tenth of the time, each comparison once; noisy");
  app.add_option("--python", options->python, "for peers and gpu-peers: a Python that has torch")
      ->capture_default_str();
  return [options](Console& console) {
    return run_bench(*options, console.out, console.err);
  };
}

}  // namespace troupe
