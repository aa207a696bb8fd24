// The buffers of a stage's chunks: state that forwards change and no gradient drives, such as batch
// norm's running statistics. Keeps the newest, and copies of those that evaluations read.
#pragma once

#include "runtime/schemes/evaluation.hpp"
#include "runtime/system/machine.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

class ChunkStatistics {
 public:
  struct Config {
    std::int32_t replica = 0;
    bool served = false;  // replicas share weights: others know when the run's end is reached
    EvaluationPlan
        evaluation;  // steps at which buffers are kept: those of the run, where they are its own
    Ref<DirectorRole> director;
    std::map<std::int32_t, std::vector<Tensor>> initial;  // by chunk of this stage
  };

  explicit ChunkStatistics(Config config);

  std::int64_t chunks() const { return static_cast<std::int64_t>(newest_.size()); }

  const std::vector<Tensor>& newest(std::int32_t chunk) const { return newest_.at(chunk); }

  /// The newest of every chunk.
  std::vector<Buffers> all() const;

  /// As a forward has left them.
  void set(std::int32_t chunk, std::vector<Tensor> buffers) {
    newest_.at(chunk) = std::move(buffers);
  }

  /// The last forward of mini-batch `batch` on `chunk` is done.
  void finish_batch(std::int32_t chunk, std::int64_t batch, Effects& fx);

  /// As the forwards before step `step` have left them.
  const std::vector<Tensor>& at(std::int32_t chunk, std::int64_t step) const;

  /// The evaluation at `step` is over.
  void release(std::int64_t step);

  /// The run ends at `step`: sends the buffers to the director, once the forwards before it are done.
  void conclude(std::int64_t step, Effects& fx);

  void archive(auto& a) { a(newest_, kept_, done_, conclude_at_); }

 private:
  static constexpr std::ptrdiff_t kKeptMax = 64;  // of a chunk

  void keep(std::int32_t chunk, std::int64_t step);
  void conclude_when_due(Effects& fx);

  Config c_;
  std::map<std::int32_t, std::vector<Tensor>> newest_;  // by chunk
  // By chunk and step, for evaluations
  std::map<std::pair<std::int32_t, std::int64_t>, std::vector<Tensor>> kept_;
  std::map<std::int32_t, std::int64_t> done_;  // by chunk: mini-batches whose forwards are done
  std::optional<std::int64_t> conclude_at_;
};

}  // namespace troupe
