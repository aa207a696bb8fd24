// Keeps one slice of the weights that replicas share. Stamps what arrives, asks its Admission what
// becomes of it, and answers from the newest weights while the next ones are being made. It is light:
// all arithmetic is its ServerOptimizer's.
//
//   replica's shard --Upload--> server --Combine--> server optimizer --Combined--> server
//   server --Answer--> replica's shard
//   replica's shard --PinnedPull--> server --Answer--> replica's shard         (evaluations)
//   the server that decides --Verdict--> the others       (where servers could decide apart)
//   group's server --Upload--> server above --Answer--> group's server  (where replicas are in groups)
//   director --Membership, Halt, End, Release--> server --MarkDue, Halted, Concluded--> director
//
// Invariants: the version grows by exactly 1 with each update. An Upload is counted once and in its
// sender's order, even where uploads arrive twice, too early or from a dead replica. Each accepted
// one is in exactly one update. At most one Combine is out. From the run's last step on nothing is
// accepted, and nothing is answered unless another server may lack pushes that this one has. A group's
// server has no steps of the run: it goes on until the one above has told it the end.
#pragma once

#include "actors/server/above.hpp"
#include "actors/server/arrived_pushes.hpp"
#include "actors/server/differences.hpp"
#include "actors/server/pins.hpp"
#include "actors/server/replicas.hpp"
#include "actors/server/run_position.hpp"
#include "actors/server/served_weights.hpp"
#include "actors/server/server_account.hpp"
#include "actors/server/verdicts.hpp"
#include "messages/evaluation.hpp"
#include "runtime/schemes/codecs/codec.hpp"
#include "runtime/schemes/evaluation.hpp"
#include "runtime/schemes/exchanges/link.hpp"
#include "runtime/schemes/optimizers/rate_factor.hpp"
#include "runtime/schemes/rules/rule.hpp"
#include "runtime/system/machine.hpp"

#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <string>
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
    /// A push is what its sender begins its next mini-batch with: the run's steps that its mini-batches complete
    /// are those of the weights before it.
    bool counts_first = false;
    bool replicas_step = false;  // pushes, and their rates, are of the replicas' own optimizers
    std::vector<Reach> reaches;  // predictions that somebody may ask for
    std::vector<Ref<ShardRole>> replicas;  // the shards of this chunk, by replica
    /// Of groups of replicas, by group: these push here in the replicas' place. Empty: there are none.
    std::vector<Ref<ServerRole>> below{};
    std::optional<Above::Config> above{};  // this one is a group's
    std::int64_t batches_per_update = 1;   // mini-batches that a step of the run stands for
    std::int64_t updates = 0;              // steps of the run; 0: until it is told
    EvaluationPlan evaluation;             // steps that are pinned in between
    std::int64_t gap_every = 0;            // versions between two measurements; 0: never
    std::int64_t period = 0;  // > 0: of the fastest replica; slower ones get less (DyLU)
    bool streams = false;     // slices take turns: others' uploads come only where all are answered
    bool never_waits = false;  // ... or no replica waits for an answer
    bool together = false;  // a stage that waits for this server's answer may owe pushes to others
    /// Where servers could decide apart, one decides for all. These do as this one says:
    std::vector<Ref<ServerRole>> followers{};
    bool follows = false;           // this one does as another says
    std::int64_t pins_between = 0;  // evaluations due between two servers' steps, at most
    bool announces = false;         // this server's pins start the evaluations
    Ref<DirectorRole> director;
    Tensor initial;                     // (n)
    std::shared_ptr<const Codec> up{};  // what pushes come through; empty: none
    std::size_t values_least = 1;       // tensors of a push
    std::size_t values_most = 1;
    std::int64_t push_most = std::numeric_limits<std::int64_t>::max();  // mini-batches of a push
    bool up_remembers = false;  // a push that is given up would be missing for good
    bool down = false;          // answers go through a codec
    bool down_whole = false;    // ... which makes sense of whole weights
  };

  explicit ServerShard(Config config);

  void handle(Upload m, double now, Effects& fx);
  void handle(PinnedPull m, double now, Effects& fx);
  void handle(Combined m, double now, Effects& fx);
  void handle(Membership m, double now, Effects& fx);
  void handle(Verdict m, double now, Effects& fx);
  void handle(Answer m, double now, Effects& fx);
  void handle(End m, double now, Effects& fx);
  void handle(Halt, double now, Effects& fx);
  void handle(Release m, double now, Effects& fx);

  void handle(ScaleRate m, double /*now*/, Effects& /*fx*/) { rate_factor_.ask(m.factor); }

  void handle(Alarm, double now, Effects& fx);
  void archive(Archive& a) override;
  std::string waits_for() const override;
  Remains remains() const override;

 private:
  void check(const Upload& m) const;
  void check_values(const Upload& m, const std::string& sender) const;
  void expect_forgetful() const;
  void receive(Upload m, double now, Effects& fx);
  void advance(double now, Effects& fx);
  void decide(double now, Effects& fx);
  void follow(double now, Effects& fx);
  bool may_update() const;

  /// A job of the optimizer's is under way.
  bool busy() const { return pushes_.updating() || (above_ && above_->at_work()); }

  bool exchange_above(Effects& fx);
  void hand_over(Answer reply, Effects& fx);
  void drop(std::vector<std::size_t> which, Effects& fx);
  void take_and_tell(std::vector<std::size_t> which, double now, Effects& fx);
  void combine(Effects& fx);
  void pass_over(double now, Effects& fx);
  void conclude_update(std::int64_t before, const Tensor& weights, double now, Effects& fx);
  Update make_update(bool measure);
  void note_applied(Updated& updated, double now, Effects& fx);
  void broadcast(double now, Effects& fx);
  void serve(double now, Effects& fx);

  bool one_decides() const { return c_.follows || verdicts_to_tell_.has_followers(); }

  bool others_may_lack() const;
  void encode(Answer& reply, std::int64_t has) const;
  void answer(std::int32_t who, std::uint64_t request, double now, Effects& fx);
  void finish(const Tensor& weights, Effects& fx);
  void give_up_waiting(Effects& fx);
  void tell_account(Effects& fx);

  std::int64_t version() const { return replicas_.ledger().version; }

  double rate(std::int64_t version) const { return rate_factor_.value() * c_.rate.at(version); }

  Config c_;
  RateFactor rate_factor_;
  ServedWeights weights_;
  Replicas replicas_;
  RunPosition run_;
  Pins pins_;
  ServerAccount account_;
  ArrivedPushes pushes_;
  Verdicts verdicts_;               // where this server follows
  VerdictSender verdicts_to_tell_;  // where it decides for others
  Differences differences_;         // Config::down
  std::optional<Above> above_;      // Config::above
  std::int64_t missing_ = 0;  // mini-batches of the update under way that died with their replica
  std::int64_t told_clock_ = 0;  // slowest clock of the last broadcast
  double begun_ = 0;             // seconds: when the last update was begun
  /// What concerns everybody's answer, as it was when serve() looked last: the slowest clock, Admission::answers_by, who
  /// lives.
  std::array<std::int64_t, 3> served_by_{-1, -1, -1};
  bool finished_ = false;
  bool halted_ = false;  // has told how far it has come and waits to hear where the end is
};

}  // namespace troupe
