// Training steps of whole networks on one thread, against the best that the libraries do here.
#pragma once

#include "apps/bench/loop.hpp"
#include "apps/bench/measure.hpp"

#include <string>
#include <vector>

namespace troupe {

struct TrainingBench {
  std::string name;  // the row, as the command line calls it
  std::string what;
  Workload workload;
  bool convolutions = false;  // the bound counts oneDNN's convolutions too
  std::string budget;
};

const std::vector<TrainingBench>& training_benches();

/// FLOPs of a step over thread time, against the peak in the same rounds; `seconds`: about.
Row training_step(const TrainingBench& bench, double seconds);

}  // namespace troupe
