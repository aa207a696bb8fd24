// Running an experiment, on either clock: `troupe run` and `troupe sim` are this with files around
// it.
#pragma once

#include "apps/topologies/blueprint.hpp"
#include "runtime/checkpoint/store.hpp"
#include "runtime/record/summary.hpp"
#include "runtime/system/driver.hpp"

#include <filesystem>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class Others;

/// Plays a run's cast in place of the two clocks.
class Driver {
 public:
  virtual ~Driver() = default;
  /// Before anything is written. Error: the run cannot begin.
  virtual Result<void> prepare(const Blueprint& blueprint, const Cast& cast) = 0;
  /// `orders`: as ThreadOptions::orders. `interrupted`: whether it is to end at once.
  virtual Ending play(Cast& cast,
                      RecordSink& records,
                      const std::vector<OrderSink*>& orders,
                      const std::function<bool()>& interrupted) = 0;
};

struct RunOptions {
  bool virtual_clock = false;
  // Of the run's files: made here, or empty; none: write nothing
  std::optional<std::filesystem::path> directory;
  bool directory_is_made = false;  // it is there, and empty
  /// Where set, the run goes on from there, and its files where they were then; `directory` exists.
  const Checkpoint* resume = nullptr;
  bool new_folder = false;  // with `resume`: in a folder of its own, as a run that begins
  /// Where set, checkpoints go here instead of into the folder; for tests.
  std::vector<Checkpoint>* kept = nullptr;
  std::ostream* progress = nullptr;              // lines for a person (stderr); null: none
  bool terminal = false;                         // progress may rewrite its last line
  std::function<int()> interrupts;               // as ThreadOptions::interrupts
  std::function<void(std::string_view)> line{};  // as RecorderConfig::line
  RecordSink* tee = nullptr;                     // sees every record, too; for tests
  std::function<void(Cast&)> recast{};       // before the run: machines may be replaced; for tests
  Driver* driver = nullptr;                  // null: the clock; without checkpoints
  std::vector<Summary::Restart> restarts{};  // so far; the last is why the run begins now
};

struct RunResult {
  int exit_code = 0;
  std::string cause;  // one sentence where exit_code != 0
  Summary summary;
  std::vector<Weights> weights;              // final, by chunk
  bool keeps_best = false;                   // those of the best evaluation (record.best)
  std::vector<std::vector<Tensor>> buffers;  // final, by chunk
};

/// summary.json's `outcome` of what ended so: "done", "interrupted", "diverged" (by permission, too) or "lost".
std::string outcome_text(int exit_code, const std::string& cause);

/// Error (usage, data or lost) where the run could not begin: nothing has been written then.
Result<RunResult> run_experiment(const Blueprint& blueprint, const RunOptions& options);

/// The same on the real clock, where the others play a part of the cast. Without checkpoints.
Result<RunResult> run_experiment(const Blueprint& blueprint,
                                 const RunOptions& options,
                                 Others& others);

}  // namespace troupe
