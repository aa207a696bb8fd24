// troupe bench: the budgets of the project, measured on this machine as ratios within one run.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace troupe {

/// The rows by name, in the order in which they run.
const std::vector<std::string>& bench_names();

/// Measures the rows named (all of them where `names` is empty) and prints one table to `out`.
/// `quick`: a tenth of the time, for a first look; its figures are noisy. Returns the exit code.
int run_bench(const std::vector<std::string>& names,
              bool quick,
              std::ostream& out,
              std::ostream& err);

}  // namespace troupe
