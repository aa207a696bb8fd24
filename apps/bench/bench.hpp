// troupe bench: the budgets of the project, measured on this machine as ratios within one run.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace troupe {

/// The rows by name, in the order in which they run.
const std::vector<std::string>& bench_names();

struct BenchOptions {
  std::vector<std::string> names{};  // empty: all but those that need a GPU or PyTorch
  bool quick = false;                // less than a tenth of the time, each comparison once; noisy
  std::string python = "python3";    // for "peers"
  bool ucx = false;                  // for "channel": tensors take UCX
};

/// Measures the rows named and prints one table to `out`. Returns the exit code.
int run_bench(const BenchOptions& options, std::ostream& out, std::ostream& err);

}  // namespace troupe
