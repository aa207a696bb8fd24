#include "apps/topologies/roster.hpp"

#include "experiment.pb.h"

#include <algorithm>
#include <utility>

namespace troupe {

Roster::Roster(const Blueprint& b) {
  const auto replicas = static_cast<std::int32_t>(b.experiment.replicas().count());
  for (std::int32_t r = 0; r < replicas; ++r) {
    enter_replica(r, b);
  }
  servers_.resize(b.chunks.size());
  server_optimizers_.resize(b.chunks.size());
  groups_.resize(b.chunks.size());
  copies_.resize(b.chunks.size());
  if (b.link) {
    enter_servers(b);
    enter_copies(b.experiment.replicas().copies());
  }
  if (b.experiment.record().angle_every() > 0) {  // on a thread of its own: nobody waits for it
    probe_ = enter<ExtensionRole>("probe", threads_, -1);
  }
}

template <class Role>
Ref<Role> Roster::enter(std::string name, int thread, std::int32_t replica) {
  const Ref<Role> ref{static_cast<ActorId>(entries_.size())};
  entries_.push_back({std::move(name), thread, replica});
  threads_ = std::max(threads_, thread + 1);
  return ref;
}

void Roster::enter_replica(std::int32_t r, const Blueprint& b) {
  const bool alone = b.experiment.replicas().count() == 1;
  const bool own = b.experiment.placement().optimizer() == proto::Placement::own;
  const auto named = [&](const std::string& what, std::int32_t i) {
    return alone ? concat(what, "-", i) : concat(what, "-", r, ".", i);
  };
  Replica& replica = replicas_.emplace_back();
  replica.source = enter<SourceRole>(alone ? "source" : concat("source-", r), threads_, r);
  if (r == 0) {
    director_ = enter<DirectorRole>("director", threads_, -1);
  }
  const int first = threads_;  // a stage's thread is its number behind this one
  for (std::int32_t k = 0; k < b.schedule->options.stages; ++k) {
    replica.stages.push_back(enter<StageRole>(named("stage", k), first + k, r));
  }
  const auto thread_of = [&](std::int32_t chunk) {
    return own ? threads_ : first + b.schedule->stage_of(chunk);
  };
  for (std::int32_t c = 0; c < b.schedule->chunks; ++c) {
    replica.shards.push_back(enter<ShardRole>(named("shard", c), thread_of(c), r));
  }
  for (std::int32_t c = 0; c < b.schedule->chunks; ++c) {
    replica.optimizers.push_back(enter<OptimizerRole>(named("optimizer", c), thread_of(c), r));
  }
  const auto add_predictor = [&](std::int32_t c, bool of_input) {
    const std::string what = of_input ? "input-predictor" : "predictor";
    const int thread = first + b.schedule->stage_of(c);  // the module's
    replica.predictors.push_back(
        {.chunk = c,
         .of_input = of_input,
         .self = enter<PredictorRole>(named(what, c), thread, r),
         .shard = enter<ShardRole>(named(what + "-shard", c), thread, r),
         .optimizer = enter<OptimizerRole>(named(what + "-optimizer", c), thread, r)});
  };
  for (std::int32_t c = 0; c < static_cast<std::int32_t>(b.predictors.size()); ++c) {
    add_predictor(c, false);
  }
  for (std::int32_t c = 1; c <= static_cast<std::int32_t>(b.input_predictors.size()); ++c) {
    add_predictor(c, true);
  }
}

/// A thread for a server and one for its optimizer, so that it answers while that is at work.
void Roster::enter_servers(const Blueprint& b) {
  for (std::size_t c = 0; c < b.chunks.size(); ++c) {
    for (std::size_t s = 0; s < b.chunks[c]->layout().slice_sizes.size(); ++s) {
      servers_[c].push_back(enter<ServerRole>(concat("server-", c, ".", s), threads_, -1));
      server_optimizers_[c].push_back(
          enter<ServerOptimizerRole>(concat("server-optimizer-", c, ".", s), threads_, -1));
      std::vector<GroupSeat>& groups = groups_[c].emplace_back();
      for (std::int64_t g = 0; g < groups_of(b.experiment); ++g) {
        const std::string of = concat(c, ".", s, ".", g);
        const Ref<ServerRole> server = enter<ServerRole>(concat("group-server-", of), threads_, -1);
        groups.push_back(
            {server, enter<ServerOptimizerRole>(concat("group-optimizer-", of), threads_, -1)});
      }
    }
  }
}

/// Of each server, `count` with itself.
void Roster::enter_copies(std::int64_t count) {
  for (std::size_t c = 0; c < servers_.size(); ++c) {
    copies_[c].resize(servers_[c].size());
    for (std::size_t s = 0; s < servers_[c].size() && count > 1; ++s) {
      copies_[c][s].push_back({servers_[c][s], server_optimizers_[c][s]});
      for (std::int64_t copy = 1; copy < count; ++copy) {
        const std::string of = concat(c, ".", s, "-copy-", copy);
        const auto server = enter<ServerRole>(concat("server-", of), threads_, -1);
        copies_[c][s].push_back(
            {server, enter<ServerOptimizerRole>(concat("server-optimizer-", of), threads_, -1)});
      }
    }
  }
}

std::vector<Ref<ShardRole>> Roster::peers(std::int32_t chunk) const {
  std::vector<Ref<ShardRole>> all;
  for (const Replica& replica : replicas_) {
    all.push_back(replica.shards[static_cast<std::size_t>(chunk)]);
  }
  return all;
}

std::vector<Ref<StageRole>> Roster::stage_of_chunks(std::int32_t replica,
                                                    const Schedule& schedule) const {
  std::vector<Ref<StageRole>> all;
  for (std::int32_t c = 0; c < schedule.chunks; ++c) {
    all.push_back(of(replica).stages[static_cast<std::size_t>(schedule.stage_of(c))]);
  }
  return all;
}

std::vector<Ref<ServerRole>> Roster::servers_of_group(std::int32_t chunk,
                                                      std::int32_t group) const {
  std::vector<Ref<ServerRole>> all;
  for (const auto& of_slice : groups_[static_cast<std::size_t>(chunk)]) {
    all.push_back(of_slice.at(static_cast<std::size_t>(group)).server);
  }
  return all;
}

std::vector<Ref<ServerRole>> Roster::all_group_servers() const {
  std::vector<Ref<ServerRole>> all;
  for (const auto& of_chunk : groups_) {
    for (const auto& of_slice : of_chunk) {
      for (const GroupSeat& seat : of_slice) {
        all.push_back(seat.server);
      }
    }
  }
  return all;
}

std::map<ActorId, std::vector<std::int32_t>> Roster::members_by_seat(
    const proto::Experiment& e) const {
  std::map<ActorId, std::vector<std::int32_t>> members;
  for (const auto& of_chunk : groups_) {
    for (const auto& of_slice : of_chunk) {
      for (std::int32_t r = 0; r < e.replicas().count() && !of_slice.empty(); ++r) {
        const GroupSeat& seat = of_slice[static_cast<std::size_t>(group_of(e, r))];
        members[seat.server.id].push_back(r);
        members[seat.optimizer.id].push_back(r);
      }
    }
  }
  return members;
}

std::vector<Ref<ServerRole>> Roster::all_servers() const {
  std::vector<Ref<ServerRole>> all;
  for (const auto& of_chunk : servers_) {
    all.insert(all.end(), of_chunk.begin(), of_chunk.end());
  }
  return all;
}

}  // namespace troupe
