// Runs L-BFGS without holding a parameter (Sandblaster; Dean et al. 2012, section 4.2): deals the
// portions of the batch to whoever is free, commands the shards' vectors by number, and decides the
// step length. It is the cast's director.
//
//   coordinator --Portion--> portion worker --PortionDone--> coordinator
//   coordinator --VectorCommands--> vector shards --VectorReply, GradientReady--> coordinator
//   coordinator --Release--> vector shards --PointReply--> coordinator          (the final weights)
//
//   evaluating --> moving (the step was too long: a shorter one) --> evaluating
//       |
//       `--> accepting --> testing (where due) --> directing --> moving
//
// It decides the order; its parts do the work: coordinator/batch_pass.hpp deals portions,
// lbfgs_direction.hpp makes directions, line_search.hpp judges steps.
//
// Invariants: a portion counts once, and at the point's version alone; an accepted point has brought
// the decrease that its slope promises; the run ends once.
#pragma once

#include "actors/casts/sandblaster/batch_pass.hpp"
#include "actors/casts/sandblaster/lbfgs_direction.hpp"
#include "actors/casts/sandblaster/line_search.hpp"
#include "actors/casts/sandblaster/shard_commands.hpp"
#include "messages/pipeline.hpp"
#include "runtime/system/machine.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace troupe {

class Coordinator final : public Actor<Coordinator, CoordinatorRole> {
 public:
  struct Config {
    std::vector<Ref<PortionWorkerRole>> workers;  // by replica
    std::vector<Ref<VectorShardRole>> shards;     // by slice
    std::int64_t samples = 1;                     // of the batch: all of the training data
    std::int64_t test_samples = 1;
    std::int64_t labels_per_sample = 1;
    bool classes = true;
    std::int32_t portions = 1;  // of the batch
    std::int32_t backup = 1;
    std::int64_t history = 10;        // m
    double armijo = 1e-4;             // share of the promised decrease
    double shrink = 0.5;              // of a step that did not bring it
    std::int64_t batches = 0;         // N: gradients of the batch; 0: until something else ends it
    double seconds = 0;               // of the clock; 0: no limit
    std::int64_t evaluate_every = 0;  // batches; 0: none in between
    bool evaluate = false;            // at the end
    double target_accuracy = 0;       // 0: none
    bool allow_divergence = false;
  };

  explicit Coordinator(Config config);

  void handle(Start, double now, Effects& fx);
  void handle(PortionDone m, double now, Effects& fx);
  void handle(GradientReady m, double now, Effects& fx);
  void handle(VectorReply m, double now, Effects& fx);
  void handle(PointReply m, double now, Effects& fx);
  void handle(Halt, double now, Effects& fx);
  void handle(Down m, double now, Effects& fx);
  void handle(Diverged m, double now, Effects& fx);
  void archive(Archive& a) override;
  std::string waits_for() const override;

 private:
  enum class Doing : std::uint8_t {
    evaluating,  // loss and gradient at the point
    testing,     // loss on the test data at the weights, which are the point
    moving,      // the shards set the point
    accepting,   // ... take the point as the weights
    directing,   // ... make the next direction
    concluding,
  };

  void begin_pass(bool test, double now, Effects& fx);
  void complete(double now, Effects& fx);

  void judge(double now, Effects& fx);
  void record_batch(Tensor total, double loss, double now, Effects& fx);
  void accept(double loss, Effects& fx);
  void go_on(double now, Effects& fx);
  void direct(LbfgsDirection::Commands commands, double now, Effects& fx);
  void descend(double now, Effects& fx);
  void move(Effects& fx);
  void command(Doing doing, const LbfgsDirection::Commands& commands, Effects& fx);

  void tested(double now, Effects& fx);
  void conclude(double now, Effects& fx);
  void finish(Ending ending, Effects& fx);

  std::int64_t rows() const { return c_.samples * c_.labels_per_sample; }

  Config c_;
  Doing doing_ = Doing::evaluating;
  BatchPass pass_;
  LineSearch search_;
  LbfgsDirection direction_;
  ShardCommands shards_;
  std::int64_t evaluations_ = 0;  // gradients of the batch so far
  std::int64_t tested_ = -1;      // evaluations_ at the last test
  bool at_weights_ = true;        // the point is the weights
  bool ending_ = false;           // nothing more is evaluated but the test data
  bool halted_ = false;
  bool finished_ = false;
  std::map<std::int32_t, Tensor> final_;  // by shard
};

}  // namespace troupe
