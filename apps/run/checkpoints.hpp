// When a run's checkpoints are due, and what goes into them besides the machines: records and where the
// run's files have come to. They are written by a thread of their own while the run goes on.
#pragma once

#include "apps/topologies/blueprint.hpp"
#include "runtime/checkpoint/store.hpp"
#include "runtime/record/order_log.hpp"
#include "runtime/record/output_file.hpp"
#include "runtime/record/recorder.hpp"
#include "runtime/system/driver.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// The parts of a run that a checkpoint is of. All outlive the Checkpointer.
struct RunParts {
  const Blueprint& blueprint;
  Cast& cast;
  Recorder& recorder;
  OutputFile* metrics = nullptr;
  const std::vector<std::unique_ptr<OrderLog>>& orders;
};

/// Writes what the run is besides its machines, or reads it back. ArchiveError.
void archive_records(Archive& a, const RunParts& parts);

/// Writes `checkpoint`, which the run is about to go on from, as the first one of its new folder. Error (lost).
Result<void> keep_beginning(const RunParts& parts,
                            const std::filesystem::path& folder,
                            Checkpoint checkpoint);

/// Used by the thread that drives the run.
class Checkpointer {
 public:
  /// `folder`: of the run; empty: there will be no checkpoints, unless they are to be `kept`, which may be
  /// null.
  Checkpointer(RunParts parts,
               std::filesystem::path folder,
               const char* clock,
               std::vector<Checkpoint>* kept);
  /// Waits for the one that is being written.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  /// There may be checkpoints.
  bool active() const { return !folder_.empty() || kept_; }

  /// `step`: updates that are complete.
  bool due(std::int64_t step) const;

  /// The last one is being written still: the next would wait for it.
  bool writing() const;

  /// Takes the state while all machines stand still, and begins to write it. What fails is told on stderr,
  /// and the run goes on, without checkpoints unless it was NotNow; where they are kept it is an ArchiveError.
  void take(const StandingRun& run);

 private:
  void take_now(const StandingRun& run);
  std::optional<Checkpoint> copied(const StandingRun& run) const;
  bool flush(Checkpoint& made, std::vector<std::filesystem::path>& files) const;
  void write(Checkpoint made,
             const StandingRun& run,
             const std::vector<std::filesystem::path>& files);
  void wait();

  RunParts parts_;
  std::filesystem::path folder_;
  std::string clock_;
  std::vector<Checkpoint>* kept_;
  std::int64_t every_ = 0;                    // updates; 0: never
  std::chrono::duration<double> seconds_{0};  // 0: never
  std::int64_t keep_ = 1;
  std::int64_t next_ = 0;  // step
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  std::atomic<std::chrono::duration<double>> last_writing_{};  // how long it took
  std::future<Result<std::filesystem::path>> writing_;
};

/// Whether every chunk has all of its slices and buffers. `buffers`, which a network may have none of, gets an
/// entry for each chunk.
bool is_whole(const Blueprint& blueprint,
              const std::vector<Weights>& weights,
              std::vector<std::vector<Tensor>>& buffers);

/// The newest weights that the machines of `cast` have at hand, by what they have `told`, and buffers, by chunk;
/// of no chunk where those of one are missing.
Ending weights_at_hand(const Blueprint& blueprint, const Cast& cast, std::vector<Standstill> told);

}  // namespace troupe
