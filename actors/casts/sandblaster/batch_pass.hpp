// A pass over the training batch or over the test data: its portions are dealt to workers that are
// free, and each counts once. A worker that is lost costs time and nothing else.
//
//   coordinator --Portion--> portion worker --PortionDone--> coordinator
//   vector shard --GradientReady--> coordinator      (training: its part of the sum is complete)
#pragma once

#include "messages/sandblaster.hpp"
#include "runtime/schemes/exchanges/dealer.hpp"
#include "runtime/system/machine.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace troupe {

class BatchPass {
 public:
  struct Config {
    std::vector<Ref<PortionWorkerRole>> workers;  // by replica
    std::size_t shards = 1;                       // of the gradient's sum
    std::int64_t samples = 1;                     // of the batch: all of the training data
    std::int64_t test_samples = 1;
    std::int32_t portions = 1;  // of the batch
    std::int32_t backup = 1;    // copies of a portion, beyond the first, that may be out at a time
  };

  /// What a pass is over.
  struct Goal {
    bool test = false;
    std::int64_t version = 0;  // of the point
    std::int64_t batch = 0;    // its number; tests and the batch after them have the same
    double began = 0;          // seconds
  };

  explicit BatchPass(Config config) : c_(std::move(config)), workers_(c_.workers.size()) {}

  void begin(const Goal& goal, Effects& fx);

  /// Gives portions to workers that are free.
  void deal(Effects& fx);

  /// False where the sender has been lost: its portions have been taken from it.
  bool came(PortionDone m);
  void came(const GradientReady& m);

  struct Lost {
    std::int32_t worker = 0;
    bool first_time = false;  // it was not known to be lost
  };

  /// The worker that `id` names is lost; none: that is no worker.
  std::optional<Lost> lose(ActorId id);

  bool any_alive() const;

  /// All portions are done and, in training, all shards have their sums.
  bool complete() const;

  /// Ends the pass: its loss and hits, summed over the portions (kernels/loss.hpp).
  Tensor take_total();

  const Goal& goal() const { return goal_; }

  /// Portions that nobody has finished.
  std::int32_t left() const { return dealer_ ? dealer_->left() : 0; }

  void archive(auto& a) {
    bool dealing = dealer_.has_value();
    a(workers_, goal_, results_, ready_, dealing);
    if (dealing) {
      dealer_ = dealer_.value_or(PortionDealer(c_.portions, c_.backup));
      a(*dealer_);
    }
  }

 private:
  struct Worker {
    bool alive = true;
    bool busy = false;
  };

  Portion portion(std::int32_t index, std::int32_t worker) const;

  Config c_;
  std::vector<Worker> workers_;
  Goal goal_;
  std::optional<PortionDealer> dealer_;     // of the pass that is under way
  std::map<std::int32_t, Tensor> results_;  // by portion
  std::size_t ready_ = 0;                   // shards whose sum is complete
};

}  // namespace troupe
