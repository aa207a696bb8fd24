// Watches over a run and ends it: when the weights of the last step have come back, when an
// evaluation has met the target, or when something went wrong. It hands evaluations to a living
// replica, and tells who has died. Who decides on the last step is its RunEnd's (run_end.hpp).
//
//   source --End, MarkDone--> director     anyone --Halt, Down, Diverged--> director
//   director --Release--> shards or servers, stages --Concluded, Buffers--> director
//   director --Halt--> source
//   server, or shard where replicas end on their own, --MarkDue--> director
//   director --MarkDue--> source of a replica --MarkDone--> director
//   director --MarkDue{own}--> every source --MarkDone{own}--> director
//   director --Halt--> servers --Halted--> director --End--> servers
//   director --Membership--> servers, shards
//   driver --Returned--> director --Membership--> servers --Readmitted--> director
//   director --Rejoin--> source, stages, shards of the replica that has come back
//   shard where replicas end on their own --Finished--> director
//
// The pins of the best evaluation are kept where the final weights are to be its: they go when a better one
// comes, and the run is concluded at them.
//
// Invariants: the run ends exactly once; final weights are those of one step on every chunk; every
// evaluation that was announced is made once, by one replica or, where that dies, by another; a replica that
// has come back begins when every server counts it among the living.
#pragma once

#include "actors/run/run_end.hpp"
#include "runtime/record/best_evaluation.hpp"
#include "runtime/system/machine.hpp"

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace troupe {

/// When each replica's own weights are evaluated, too, after the mean of all; as proto::Record::EachReplica.
enum class EachReplica : std::uint8_t { at_end, always, never };

class Director final : public Actor<Director, DirectorRole> {
 public:
  struct Config {
    Company company;
    std::unique_ptr<RunEnd> end;           // empty: at the source
    std::vector<std::int32_t> replica_of;  // by ActorId; -1: everybody's
    // Of machines of a group of replicas, which these cannot go on without
    std::map<ActorId, std::vector<std::int32_t>> group_of{};
    bool survives = false;       // the run goes on without a replica that died
    bool evaluate = true;        // a Mark at the last step will come
    double target_accuracy = 0;  // 0: none
    bool allow_divergence = false;
    BestEvaluation::Config best{};
    bool keeps_best = false;  // the final weights are those of the best evaluation
    EachReplica each = EachReplica::never;
  };

  explicit Director(Config config);

  void handle(End m, double now, Effects& fx);
  void handle(MarkDue m, double now, Effects& fx);
  void handle(MarkDone m, double now, Effects& fx);
  void handle(Halted m, double now, Effects& fx);
  void handle(Finished m, double now, Effects& fx);
  void handle(Halt, double now, Effects& fx);
  void handle(Concluded m, double now, Effects& fx);
  void handle(Buffers m, double now, Effects& fx);
  void handle(Down m, double now, Effects& fx);
  void handle(Returned m, double now, Effects& fx);
  void handle(Readmitted m, double now, Effects& fx);
  void handle(Diverged m, double now, Effects& fx);
  void archive(Archive& a) override;
  std::string waits_for() const override;

 private:
  std::vector<std::int32_t> depending_on(ActorId id) const;
  void conclude(Effects& fx);
  void release(std::int64_t step, bool conclude, Effects& fx);
  void finish(Ending ending, Effects& fx);
  void judged(const MarkDone& m, bool better, Effects& fx);
  void evaluate_each(std::int64_t step, bool ends, Effects& fx);
  void evaluated_own(const MarkDone& m, Effects& fx);
  void end_evaluation_of_each(Effects& fx);
  void evaluated(std::int64_t step, bool ends, Effects& fx);
  void conclude_at_best(std::int64_t step, Effects& fx);
  void announce(const MarkDue& m, Effects& fx);
  void pass_over(const std::vector<std::int64_t>& steps, Effects& fx) const;
  void begin_mark(Effects& fx);
  void end_where_all_finished(Effects& fx);
  void replace_evaluator(Effects& fx);
  std::int32_t evaluator() const;

  /// An evaluation of each replica's own weights.
  struct EvaluationOfEach {
    std::int64_t step = 0;
    bool ends = false;                 // the run, when it is done
    std::set<std::int32_t> missing{};  // replicas
  };

  /// Of a replica that has come back: what the servers have said that count it among the living.
  struct Returning {
    std::int64_t epoch = 0;  // of the membership that they are told
    std::size_t servers = 0;
    std::int64_t arrived = 0;  // the most of Readmitted's
    std::int64_t batch = 0;    // the same
  };

  Config c_;
  std::optional<std::int64_t> concluding_;                             // step of the final weights
  std::map<std::pair<std::int32_t, std::size_t>, Weights> concluded_;  // by chunk and slice
  std::map<std::int32_t, std::vector<Tensor>> buffers_;                // by chunk, of the evaluator
  std::vector<bool> alive_;                                            // by replica
  std::int64_t epoch_ = 0;                                             // of the membership
  // By replica: epoch in which it came back; 0: there from the start
  std::vector<std::int64_t> since_;
  std::map<std::int32_t, Returning> returning_;  // by replica
  std::deque<MarkDue> marks_;                    // announced and not done; the first is under way
  bool marking_ = false;
  std::optional<EvaluationOfEach> each_;  // under way
  std::int64_t measured_ = -1;            // step of the last of them that was done
  bool finished_ = false;
  BestEvaluation best_;
  // With keeps_best: whose pins are kept, until a better one comes
  std::optional<std::int64_t> best_step_;
  std::optional<std::int64_t> ended_at_;  // concluding at best_step_: the step of the run's end
};

}  // namespace troupe
