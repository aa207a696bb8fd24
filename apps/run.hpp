// Running an experiment, on either clock: `troupe run` and `troupe sim` are this with files around it.
#pragma once

#include "apps/topologies/pipeline.hpp"
#include "runtime/system/driver.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

struct RunOptions {
  bool virtual_clock = false;
  std::optional<std::filesystem::path> directory;  // of the run's files: made here, must not exist; none: write nothing
  std::ostream* progress = nullptr;                // lines for a person (stderr); null: none
  bool terminal = false;                           // progress may rewrite its last line
  std::function<int()> interrupts;                 // as ThreadOptions::interrupts
  RecordSink* tee = nullptr;                       // sees every record, too; for tests
};

/// What the end of a run tells: summary.json is this.
struct Summary {
  struct Staleness {                                  // of one shard, in versions: one entry a micro-batch applied
    double mean = 0;
    std::int64_t max = 0;
    std::map<std::int64_t, std::int64_t> histogram;   // versions -> how often
    double seconds_mean = 0;                          // the same in seconds of the run's clock
  };
  std::string clock;              // "real" or "virtual"
  std::int64_t updates = 0;       // step of the weights reported
  double epochs = 0;
  std::int64_t samples = 0;
  double seconds = 0;             // of the run's clock
  double wall_seconds = 0;
  double samples_per_second = 0;  // of the run's clock
  double train_loss = 0;          // mean over the last epoch, or over the run where it is shorter
  std::optional<double> test_loss;
  std::optional<double> test_accuracy;
  std::map<std::string, Staleness> staleness;  // by shard ("shard-0")
  std::map<std::string, double> gap;           // by shard: mean of the sampled gaps
  std::map<std::string, double> busy;          // by stage: share of the run's seconds
  std::map<std::string, std::int64_t> stashes; // by stage: the most micro-batches kept at once
  std::string weights_sha256;     // over the parameters in layer order, float32 little endian, no padding; "" where the run failed
  std::string order_sha256;       // "" where no order was recorded
};

struct RunResult {
  int exit_code = 0;
  std::string cause;             // one sentence where exit_code != 0
  Summary summary;
  std::vector<Weights> weights;  // final, by chunk
};

/// Error (usage, data or lost) where the run could not begin: nothing has been written then.
Result<RunResult> run_experiment(const Blueprint& blueprint, const RunOptions& options);

/// summary.json's text.
std::string to_json(const Summary& summary, const proto::Experiment& experiment);

}  // namespace troupe
