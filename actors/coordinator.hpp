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
//       `--> curvature (accepted) --> testing (where due) --> backward --> forward --> slope --> moving
//
// Invariants: a portion counts once, and at the point's version alone; an accepted point has brought
// the decrease that its slope promises (Armijo); a pair (s, y) is kept only where s.y > 0, so that
// directions descend; the run ends once. A worker that is lost costs time and nothing else.
#pragma once

#include "runtime/schemes/dealer.hpp"
#include "runtime/system/machine.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
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
  std::string waits_for() const override;

 private:
  enum class Doing : std::uint8_t {
    evaluating,  // loss and gradient at the point
    testing,     // loss on the test data at the weights, which are the point
    moving,      // the shards set the point
    curvature,   // ... take the point as the weights, and tell s.y and y.y of the new pair
    backward,    // the first loop over the history, newest first
    forward,     // the second, oldest first
    slope,       // of the direction
    concluding,
  };

  struct Pair {  // of the history
    std::int64_t slot = 0;
    double rho = 0;    // 1 / s.y
    double alpha = 0;  // of the present direction
  };

  struct Worker {
    bool alive = true;
    bool busy = false;
  };

  // portions
  void begin_pass(bool test, double now, Effects& fx);
  void deal(Effects& fx);
  Portion portion(std::int32_t index, std::int32_t worker) const;
  void complete(double now, Effects& fx);

  // L-BFGS
  void judge(double now, Effects& fx);
  void accept(Effects& fx);
  void note_pair(const std::vector<double>& dots);
  void go_on(double now, Effects& fx);
  void begin_direction(Effects& fx);
  void turn(Effects& fx);
  void step_forward(double change_dot, Effects& fx);
  void descend(double slope, double now, Effects& fx);
  void move(double length, Effects& fx);
  void replied(const std::vector<double>& dots, double now, Effects& fx);

  void command(Doing doing, std::vector<VectorCommand> commands, bool moves, Effects& fx);
  void tested(double now, Effects& fx);
  void conclude(double now, Effects& fx);
  void finish(Ending ending, Effects& fx);

  Config c_;
  Doing doing_ = Doing::evaluating;
  std::vector<Worker> workers_;
  std::optional<PortionDealer> dealer_;
  std::map<std::int32_t, Tensor> results_;  // by portion of the pass
  std::int64_t ready_ = 0;                  // shards whose sum is complete
  double pass_began_ = 0;                   // seconds

  std::int64_t version_ = 0;      // of the point
  std::int64_t evaluations_ = 0;  // gradients of the batch so far
  double loss_ = 0;               // at the weights, mean over the batch
  double point_loss_ = 0;
  double gradient_square_ = 0;  // |g|^2 at the weights
  double slope_ = 0;            // g . direction
  double length_ = 0;           // of the step to the point, in directions
  std::int32_t shortened_ = 0;  // times, since the last accepted point
  bool at_weights_ = true;      // the point is the weights
  bool ending_ = false;         // nothing more is evaluated but the test data
  bool halted_ = false;
  std::int64_t tested_ = -1;  // step of the last test

  std::deque<Pair> pairs_;  // oldest first
  std::int64_t slot_ = 0;   // of the pair to come
  double scale_ = 1;        // s.y / y.y of the newest pair: the first guess at the curvature
  std::size_t at_ = 0;      // pair that the loops are at

  std::uint64_t request_ = 0;
  std::map<std::int32_t, std::vector<double>> replies_;  // by shard
  std::map<std::int32_t, Tensor> final_;                 // by shard
  bool finished_ = false;
};

}  // namespace troupe
