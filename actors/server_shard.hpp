// Keeps one slice of the weights that replicas share, stamps what arrives, asks its Admission what
// becomes of it, and answers from the newest weights while the next ones are being made. Light: all
// arithmetic is its ServerOptimizer's.
//
//   replica's shard --Upload--> server --Combine--> server optimizer --Combined--> server
//   server --Answer--> replica's shard
//   replica's shard --PinnedPull--> server --Answer--> replica's shard         (evaluations)
//   director --Membership, Halt, End, Release--> server --MarkDue, Halted, Concluded--> director
//
// Invariants: the version grows by exactly 1 with each update; an Upload is counted once and in its
// sender's order, whatever arrives twice, too early or from the dead; each accepted one is in exactly
// one update; at most one Combine is out; from the run's last step on nothing is accepted, and nothing
// answered unless another server may lack what this one has.
#pragma once

#include "runtime/schemes/evaluation.hpp"
#include "runtime/schemes/link.hpp"
#include "runtime/schemes/rule.hpp"
#include "runtime/system/machine.hpp"

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace troupe {

class ServerShard final : public Actor<ServerShard, ServerRole> {
 public:
  struct Config {
    Ref<ServerRole> self;
    std::int32_t chunk = 0;
    std::size_t slice = 0;
    Ref<ServerOptimizerRole> optimizer;
    std::shared_ptr<const Admission> admission;
    bool needs_read = false;  // contributions come with the weights that they were computed at
    Rate rate;
    bool replicas_step =
        false;  // pushes are the work of the replicas' own optimizers, and so are rates
    std::vector<Reach> reaches;            // predictions that somebody may ask for
    std::vector<Ref<ShardRole>> replicas;  // the shards of this chunk, by replica
    std::int64_t batches_per_update = 1;   // mini-batches that a step of the run stands for
    std::int64_t updates = 0;              // steps of the run; 0: until it is told
    EvaluationPlan evaluation;             // steps that are pinned in between
    std::int64_t gap_every = 0;            // versions between two measurements; 0: never
    std::int64_t period = 0;  // > 0: of the fastest replica; slower ones get less (DyLU)
    bool streams = false;     // slices take turns, and the others' come only where all are answered
    bool together = false;    // who waits for this server's answer may owe pushes to others
    bool announces = false;   // this server's pins start the evaluations
    Ref<DirectorRole> director;
    Tensor initial;  // (n)
  };

  explicit ServerShard(Config config);

  void handle(Upload m, double now, Effects& fx);
  void handle(PinnedPull m, double now, Effects& fx);
  void handle(Combined m, double now, Effects& fx);
  void handle(Membership m, double now, Effects& fx);
  void handle(End m, double now, Effects& fx);
  void handle(Halt, double now, Effects& fx);
  void handle(Release m, double now, Effects& fx);
  void handle(Alarm, double now, Effects& fx);
  std::string waits_for() const override;

 private:
  struct Replica {
    std::uint64_t sequence = 0;                // of the last Upload
    std::uint64_t held = 0;                    // of the last Upload that is in the weights
    std::map<std::uint64_t, Upload> early{};   // by sequence: overtook one before
    std::optional<Upload> question{};          // without its tensors; open
    Tensor own{};                              // what it alone is answered with
    std::map<std::int64_t, Weights> handed{};  // by version: what it may still be computing with
    std::int64_t newest_handed = 0;            // version
    double answered_at = 0;                    // seconds
    double speed = 0;                          // mini-batches a second, at last sight
  };

  Replica& replica(std::int32_t r) { return replicas_.at(static_cast<std::size_t>(r)); }

  void receive(Upload m, double now);
  void advance(double now, Effects& fx);
  void drop(std::vector<std::size_t> which);
  void give_up(const Upload& m);
  void combine(const std::vector<std::size_t>& take, Effects& fx);
  void serve(double now, Effects& fx);
  void answer(std::int32_t r, std::uint64_t request, double now, Effects& fx);
  void answer_pinned(const PinnedPull& pull, Effects& fx);
  void pin(std::int64_t step, Effects& fx);
  std::int64_t pin_of(std::int64_t step) const;
  void let_go();
  void finish(Effects& fx);
  void tell_account(Effects& fx);
  void conclude(Effects& fx);

  std::int64_t step() const { return mini_batches_ / c_.batches_per_update; }

  std::int64_t step_after() const;

  bool over() const { return end_ && step() >= *end_; }

  Config c_;
  Ledger ledger_;
  std::vector<Replica> replicas_;
  Weights newest_;  // base, then predictions
  Tensor sent_;     // what pulls are answered with instead of the base; empty: the base
  std::vector<Tensor> moments_;  // merged, as of the newest update
  std::deque<Upload> waiting_;
  std::vector<Upload> applying_;    // without their tensors
  std::vector<std::int32_t> gone_;  // whom the optimizer has not forgotten yet
  std::int64_t mini_batches_ = 0;   // in the weights
  std::int64_t told_ = 0;           // slowest clock of the last broadcast
  std::optional<std::int64_t> end_;
  bool finished_ = false;
  bool accounted_ = false;
  bool halted_ = false;                  // told how far it has come, waits to hear where the end is
  std::map<std::int64_t, Tensor> pins_;  // by step
  std::optional<std::int64_t> released_;  // pin that may go as soon as it cannot be the last
  std::deque<PinnedPull> pulls_;          // of steps to come
  std::optional<std::int64_t> conclude_at_;
  std::int64_t membership_ = 0;  // epoch
  ServerRecord account_;
};

}  // namespace troupe
