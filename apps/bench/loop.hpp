// One training step over and over on the calling thread, no actor, no message.
#pragma once

#include "apps/bench/workload.hpp"
#include "messages/proto.hpp"
#include "runtime/model/chunk.hpp"
#include "runtime/schemes/optimizers/chunk_optimizer.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

/// SGD with momentum, as troupe run makes it.
class BareLoop {
 public:
  explicit BareLoop(const Workload& workload,
                    Device device = {},
                    Precision precision = Precision::fp32);

  std::int64_t batch() const { return batch_; }

  std::int64_t parameters() const { return chunk_.layout().parameters(); }

  double flops() const;  // of a step

  /// On a GPU they are enqueued.
  void steps(std::int64_t n);

  void synchronize() { stream_.synchronize(); }

 private:
  BareLoop(const Workload& workload,
           const proto::Experiment& experiment,
           const std::shared_ptr<const Dataset>& data,
           Device device,
           Precision precision);

  std::int64_t batch_;
  Chunk chunk_;
  Stream stream_;
  ChunkOptimizer optimizer_;
  double carried_ = 1;
  std::int64_t updates_ = 0;
  Tensor x_, labels_;
  std::vector<Tensor> m_, buffers_;
  Weights weights_;
};

}  // namespace troupe
