// Who is who: hands out every machine's id, name and thread, in one walk over the blueprint. Nothing
// else computes them.
#pragma once

#include "apps/topologies/blueprint.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

class Roster {
 public:
  /// A machine before it is made.
  struct Entry {
    std::string name;
    int thread = 0;
    std::int32_t replica = -1;  // that it dies with; -1: everybody's
  };

  /// A predictor of a module's error signals, or of its inputs, has a shard and an optimizer of its own.
  struct PredictorSeat {
    std::int32_t chunk = 0;  // the module
    bool of_input = false;
    Ref<PredictorRole> self;
    Ref<ShardRole> shard;
    Ref<OptimizerRole> optimizer;
  };

  /// Replica 0's source comes first, the director after it; then replica by replica stages, shards
  /// and optimizers, and where modules have predictors those; then the servers, each with its
  /// optimizer, then the probe, and at the end what has further copies, household by household.
  explicit Roster(const Blueprint& blueprint);

  Ref<DirectorRole> director() const { return director_; }

  Ref<SourceRole> source(std::int32_t replica) const { return of(replica).source; }

  const std::vector<Ref<StageRole>>& stages(std::int32_t replica) const {
    return of(replica).stages;
  }

  /// By chunk.
  const std::vector<Ref<ShardRole>>& shards(std::int32_t replica) const {
    return of(replica).shards;
  }

  const std::vector<Ref<OptimizerRole>>& optimizers(std::int32_t replica) const {
    return of(replica).optimizers;
  }

  /// Those of error signals by module, the last of which has none, then those of inputs, of which the
  /// first has none; or empty.
  const std::vector<PredictorSeat>& predictors(std::int32_t replica) const {
    return of(replica).predictors;
  }

  /// The same chunk's shards, by replica.
  std::vector<Ref<ShardRole>> peers(std::int32_t chunk) const;

  /// The stage that works on each chunk.
  std::vector<Ref<StageRole>> stage_of_chunks(std::int32_t replica, const Schedule& schedule) const;

  /// By slice of the chunk; empty without servers.
  const std::vector<Ref<ServerRole>>& servers(std::int32_t chunk) const {
    return servers_[static_cast<std::size_t>(chunk)];
  }

  std::vector<Ref<ServerRole>> all_servers() const;

  /// A server of a group of replicas, under those above.
  struct GroupSeat {
    Ref<ServerRole> server;
    Ref<ServerOptimizerRole> optimizer;
  };

  /// By group; empty where replicas are in none.
  const std::vector<GroupSeat>& groups(std::int32_t chunk, std::size_t slice) const {
    return groups_[static_cast<std::size_t>(chunk)][slice];
  }

  /// Machines that play together and are lost together: a stage with its source, shards, optimizers and predictors, or a
  /// server with its optimizer. Who has copies is a household.
  struct Household {
    std::string name;                           // of the stage or server
    std::vector<std::vector<ActorId>> seats{};  // by copy, the first of which is always there
  };

  /// Replica by replica the stages', then the servers'.
  const std::vector<Household>& households() const { return households_; }

  /// All copies of the machine; itself where it has no other.
  std::vector<ActorId> copies_of(ActorId first) const;

  /// By slice of the chunk: where a replica of `group` pushes.
  std::vector<Ref<ServerRole>> servers_of_group(std::int32_t chunk, std::int32_t group) const;
  std::vector<Ref<ServerRole>> all_group_servers() const;
  /// The replicas of the group that each machine of groups is of.
  std::map<ActorId, std::vector<std::int32_t>> members_by_seat(const proto::Experiment& e) const;

  Ref<ServerOptimizerRole> server_optimizer(std::int32_t chunk, std::size_t slice) const {
    return server_optimizers_[static_cast<std::size_t>(chunk)][slice];
  }

  /// Where record.angle_every asks for one.
  std::optional<Ref<ExtensionRole>> probe() const { return probe_; }

  const std::vector<Entry>& entries() const { return entries_; }  // by ActorId

  int threads() const { return threads_; }

 private:
  struct Replica {
    Ref<SourceRole> source;
    std::vector<Ref<StageRole>> stages;
    std::vector<Ref<ShardRole>> shards;
    std::vector<Ref<OptimizerRole>> optimizers;
    std::vector<PredictorSeat> predictors;
  };

  template <class Role>
  Ref<Role> enter(std::string name, int thread, std::int32_t replica);
  void enter_replica(std::int32_t r, const Blueprint& blueprint);
  void enter_servers(const Blueprint& blueprint);
  void gather_stage(std::int32_t r, std::int32_t k, const Schedule& schedule);
  void enter_copies(Household& household, int count);

  const Replica& of(std::int32_t replica) const {
    return replicas_[static_cast<std::size_t>(replica)];
  }

  std::vector<Entry> entries_;
  int threads_ = 0;
  Ref<DirectorRole> director_;
  std::vector<Replica> replicas_;
  std::vector<std::vector<Ref<ServerRole>>> servers_;  // by chunk and slice
  std::vector<std::vector<Ref<ServerOptimizerRole>>> server_optimizers_;
  std::vector<std::vector<std::vector<GroupSeat>>> groups_;  // by chunk, slice and group
  std::vector<Household> households_;
  std::optional<Ref<ExtensionRole>> probe_;
};

}  // namespace troupe
