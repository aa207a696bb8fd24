// One thread of sparse Hogwild: takes its mini-batches, r, r + R, r + 2R, ... of the shuffled data,
// and goes through their rows, one step of SGD each, straight on the buffer that all workers share.
//
//   row source --Advance--> row worker --Advanced--> row source
//
// Invariants: mini-batches in order, one at a time; each of its rows is one update; nothing is read
// or written but what a row touches. A mini-batch is one job, so that on the virtual clock its steps
// follow one another undisturbed.
#pragma once

#include "kernels/sparse.hpp"
#include "messages/results.hpp"
#include "messages/sparse.hpp"
#include "runtime/data/sparse.hpp"
#include "runtime/schemes/optimizers/rate.hpp"
#include "runtime/system/machine.hpp"

#include <memory>

namespace troupe {

class RowWorker final : public Actor<RowWorker, RowWorkerRole> {
 public:
  struct Config {
    std::int32_t replica = 0;
    std::int32_t replicas = 1;
    std::shared_ptr<SharedBuffer> weights;
    std::shared_ptr<const SparseData> data;
    std::int64_t batch_size = 1;  // rows
    std::uint64_t seed = 1;
    Rate rate;
    SharedAdd add = SharedAdd::atomic;
    Ref<RowSourceRole> source;
  };

  explicit RowWorker(Config config);

  void handle(Advance m, double now, Effects& fx);
  void handle(Ran<RowsDone> m, double now, Effects& fx);
  void archive(Archive& a) override;
  std::string waits_for() const override;

 private:
  void go_on(double now, Effects& fx);

  Config c_;
  BatchOrder order_;
  std::int64_t next_;         // mini-batch of the run
  std::int64_t allowed_ = 0;  // mini-batches of the run
  bool running_ = false;
  double started_ = 0;  // seconds
};

}  // namespace troupe
