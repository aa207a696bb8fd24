// Watches over a run and ends it: when the weights of the last step have come back, when an
// evaluation has met the target, or when something went wrong. With servers it also finds a common
// end where the run is to stop early, hands evaluations to a living replica, and tells the servers
// who has died.
//
//   source --End, MarkDone--> director     anyone --Halt, Down, Diverged--> director
//   director --Release--> shards or servers, stages --Concluded, Buffers--> director
//   director --Halt--> source
//   server, or shard under hogwild, --MarkDue--> director --MarkDue--> source of a replica --MarkDone--> director
//   director --Halt--> servers --Halted--> director --End--> servers
//   director --Membership--> servers
//   shard --Finished--> director                               (hogwild)
//
// Invariants: the run ends exactly once; final weights are those of one step on every chunk; every
// evaluation that a server announced is made once, by one replica or, where that dies, by another.
#pragma once

#include "runtime/system/machine.hpp"

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace troupe {

class Director final : public Actor<Director, DirectorRole> {
 public:
  struct Config {
    std::vector<Ref<SourceRole>> sources;             // by replica
    std::vector<std::vector<Ref<ShardRole>>> shards;  // by replica and chunk: the evaluator's
                                                      // weights end the run; or
    std::vector<Ref<ServerRole>> servers;  // all slices of all chunks, where replicas share servers
    std::vector<std::vector<Ref<StageRole>>> stages;  // by replica
    std::vector<std::int32_t> replica_of;             // by ActorId; -1: everybody's
    std::int32_t chunks = 1;
    bool each_finishes = false;  // hogwild: replicas end one by one, the run with the last of them
    bool survives = false;       // the run goes on without a replica that died
    bool evaluate = true;        // a Mark at the last step will come
    double target_accuracy = 0;  // 0: none
    bool allow_divergence = false;
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
  void handle(Diverged m, double now, Effects& fx);
  std::string waits_for() const override;

 private:
  void conclude(Effects& fx);
  void release(std::int64_t step, bool conclude, Effects& fx);
  void finish(Ending ending, Effects& fx);

  void announce(const MarkDue& m, Effects& fx);
  void begin_mark(Effects& fx);
  void halt_sources(Effects& fx);
  void end_where_all_finished(Effects& fx);
  std::int32_t evaluator() const;  // the first living replica

  Config c_;
  std::optional<std::int64_t> concluding_;                             // step of the final weights
  std::map<std::pair<std::int32_t, std::size_t>, Weights> concluded_;  // by chunk and slice
  std::map<std::int32_t, std::vector<Tensor>> buffers_;                // by chunk, of the evaluator
  std::vector<bool> alive_;                                            // by replica
  std::int64_t epoch_ = 0;                                             // of the membership
  std::deque<MarkDue> marks_;  // announced by servers and not done; the first is under way
  bool marking_ = false;
  std::int64_t measured_ = -1;  // step of the last of them that was done
  bool halted_ = false;
  std::map<std::pair<std::int32_t, std::size_t>, std::int64_t> progress_;  // answers to Halt
  std::int64_t announced_ = 0;                            // hogwild: step of the last mark
  std::set<std::pair<std::int32_t, std::int32_t>> done_;  // ... (replica, chunk) that have finished
  std::int64_t updates_ = 0;                              // ... of all replicas
  bool ending_ = false;                                   // ... the last mark is under way
  bool finished_ = false;
};

}  // namespace troupe
