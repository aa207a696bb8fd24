// A server keeps one slice of a chunk's weights for all replicas. The Admission of its rule decides which pushes make an
// update and who waits. The server leaves all arithmetic to its ServerOptimizer, so that it can answer from the newest
// weights while the next ones are being made.
//
//   replica's shard --Upload--> server --Combine--> server optimizer --Combined--> server
//   server --Answer--> replica's shard
//   replica's shard --PinnedPull--> server --Answer--> replica's shard         (evaluations)
//   the server that decides --Verdict--> the others  (where each could decide otherwise: verdicts.hpp)
//   group's server --Upload--> server above --Answer--> group's server  (where replicas are in groups: above.hpp)
//   director --Membership, Halt, End, Release--> server --MarkDue, Halted, Concluded--> director
//
// Invariants: the version grows by exactly 1 with each update. Uploads are taken once each and in their sender's order,
// even where they arrive twice, too early or from a dead replica. Each accepted push is in exactly one update. At most one
// Combine is under way. From the run's last step on no push is accepted, and no Upload is answered unless another server
// still needs pushes that replicas can only make with this server's answers. The steps of the run are those of the server
// above: a group's server goes on until that one has sent End.
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
    bool needs_read = false;  // the rule needs the weights that each push was computed at
    Rate rate;
    /// The weights of a step of the run are those before the update that completes it: pushes are weights that a
    /// mini-batch begins with (easgd's moment `before`).
    bool steps_before_update = false;
    /// Pushes are made by the replicas' own optimizers, at learning rates that they tell.
    bool replica_optimizers = false;
    std::vector<Reach> reaches;            // how far the predictions look ahead that stages ask for
    std::vector<Ref<ShardRole>> replicas;  // the shards of this chunk, by replica
    /// By group of replicas: its server, which pushes here in place of the replicas. Empty: no groups.
    std::vector<Ref<ServerRole>> below{};
    std::optional<Above::Config> above{};  // of a group's server
    std::int64_t batches_per_update = 1;   // mini-batches in a step of the run
    std::int64_t updates = 0;              // steps of the run; 0: not known before End
    EvaluationPlan evaluation;             // which steps are evaluated
    std::int64_t gap_every = 0;            // versions between two measurements of the gap; 0: never
    /// Mini-batches between two pushes of the fastest replica; slower ones push after fewer (DyLU). 0: the Link says.
    std::int64_t period = 0;
    bool slices_take_turns = false;  // a replica pushes its slices at different times (streaming)
    bool never_waits = false;        // no replica waits for an answer
    /// A stage works on several chunks at once: while it waits for this server, it may owe pushes to others.
    bool shares_stage = false;
    /// The servers that this one decides for.
    std::vector<Ref<ServerRole>> followers{};
    bool follows = false;         // another server decides for this one
    std::int64_t pins_ahead = 0;  // Pins::Config::ahead
    bool announces = false;       // an evaluation begins when this server has its weights
    Ref<DirectorRole> director;
    Tensor initial;                     // (n)
    std::shared_ptr<const Codec> up{};  // the codec of pushes; empty: none
    std::size_t push_tensors_min = 1;   // of a push
    std::size_t push_tensors_max = 1;
    std::int64_t push_mini_batches_max = std::numeric_limits<std::int64_t>::max();  // of a push
    bool up_has_memory = false;  // later pushes build on this one, which must not be dropped
    bool down = false;           // a codec makes messages of answers
    bool down_whole = false;     // ... of the whole weights, not of how they have changed
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
  void expect_may_drop() const;
  void receive(Upload m, double now, Effects& fx);
  void advance(double now, Effects& fx);
  void decide(double now, Effects& fx);
  void follow(double now, Effects& fx);
  bool may_update() const;

  /// The optimizer is at work.
  bool busy() const { return pushes_.updating() || (above_ && above_->at_work()); }

  bool exchange_above(Effects& fx);
  void send_answer(Answer reply, Effects& fx);
  void drop(std::vector<std::size_t> which, Effects& fx);
  void begin_update(std::vector<std::size_t> which, double now, Effects& fx);
  void combine(Effects& fx);
  void make_empty_update(double now, Effects& fx);
  void conclude_update(std::int64_t step_before, const Tensor& weights, double now, Effects& fx);
  Update make_update(bool measure);
  void note_applied(Updated& updated, double now, Effects& fx);
  void broadcast(double now, Effects& fx);
  void answer_waiting(double now, Effects& fx);

  bool one_decides() const { return c_.follows || verdict_sender_.has_followers(); }

  bool others_may_need_pushes() const;
  void encode(Answer& reply, std::int64_t has) const;
  void answer(std::int32_t who, std::uint64_t request, double now, Effects& fx);
  void finish(const Tensor& weights, Effects& fx);
  void drop_waiting(Effects& fx);
  void record_account(Effects& fx);

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
  Verdicts verdicts_;                   // Config::follows
  VerdictSender verdict_sender_;        // Config::followers
  Differences differences_;             // Config::down
  std::optional<Above> above_;          // Config::above
  std::int64_t lost_mini_batches_ = 0;  // of the update under way: they died with their replica
  std::int64_t broadcast_clock_ = 0;    // the slowest replica's clock at the last broadcast
  double update_begun_ = 0;             // seconds: when the last update began
  /// The slowest clock, Admission::answers_by and the membership when answer_waiting() looked last. Only where one of
  /// them has changed may a replica get an answer that has not changed itself.
  std::array<std::int64_t, 3> answers_rest_on_{-1, -1, -1};
  bool finished_ = false;
  bool halted_ = false;  // has sent Halted and makes no update before End comes
};

}  // namespace troupe
