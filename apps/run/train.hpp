// Training from within a program of one's own: data that it has in memory, callbacks while the run goes
// on, a stop, and the trained weights as tensors by name. No file is read or written but those that the
// experiment or `directory` name.
#pragma once

#include "kernels/result.hpp"
#include "kernels/tensor.hpp"
#include "runtime/record/summary.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace troupe {

class Dataset;

/// A micro-batch has gone forward.
struct TrainingLoss {
  std::int32_t replica = 0;
  std::int64_t batch = 0;        // the replica's mini-batch, from 0
  std::int32_t micro_batch = 0;  // within it
  double loss = 0;               // mean over its samples, or over the positions of its sequences
  double seconds = 0;            // of the run's clock
};

/// The weights of a step have been tried on the test data.
struct TestResult {
  std::int64_t step = 0;           // updates
  double loss = 0;                 // mean
  std::optional<double> accuracy;  // 0 to 1; none: the data has no classes
  double seconds = 0;              // of the run's clock
};

struct TrainOptions {
  bool virtual_clock = false;  // as `troupe sim`; else as `troupe run`
  /// Instead of the experiment's data, of which batch_size and growth still count (memory_dataset of
  /// runtime/data/memory.hpp makes one of vectors). Empty: the experiment's.
  std::shared_ptr<const Dataset> data{};
  /// Called in the order of the run's events: on the virtual clock by the thread that called train(), on
  /// the real one by one thread of the run's own, while the run goes on. False: stop soon, as `stop`
  /// does. They must not throw.
  std::function<bool(const TrainingLoss&)> on_loss{};
  std::function<bool(const TestResult&)> on_evaluation{};
  /// Asked some times a second: the run admits nothing more, finishes what is under way and ends with the
  /// weights that it then has.
  std::stop_token stop{};
  /// Folder for the files of a run, made here, or empty; none: nothing is written.
  std::optional<std::filesystem::path> directory{};
};

struct Trained {
  int exit_code = 0;  // as of `troupe run`: 0 done, 130 stopped, 4 diverged, 5 lost
  std::string cause;  // one sentence where exit_code is not 0
  Summary summary;
  /// By name ("dense1.weight"), in host memory, float32 and of the shapes that they have in the network;
  /// buffers such as batch norm's running means among them. Empty where the run failed, unless it stalled:
  /// then the newest of each chunk.
  std::map<std::string, Tensor> weights{};
};

/// Runs an experiment: a preset or a file of one's own, changed by `assignments` ("path=value", as --set
/// has them). Blocks until it has ended. Error (usage, data or lost) where it could not begin.
Result<Trained> train(const std::string& experiment,
                      const std::vector<std::string>& assignments,
                      const TrainOptions& options = {});

}  // namespace troupe
