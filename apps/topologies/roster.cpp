#include "apps/topologies/roster.hpp"

#include "apps/topologies/copies.hpp"
#include "experiment/run.pb.h"
#include "kernels/sequences.hpp"
#include "messages/sections.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

Roster::Roster(const Blueprint& b) {
  const auto replicas = static_cast<std::int32_t>(sections::replica_count(b.experiment));
  for (std::int32_t r = 0; r < replicas; ++r) {
    enter_replica(r, b);
  }
  servers_.resize(b.chunks.size());
  server_optimizers_.resize(b.chunks.size());
  groups_.resize(b.chunks.size());
  if (b.link) {
    enter_servers(b);
  }
  if (sections::record(b.experiment).angle_every() >
      0) {  // on a thread of its own: nobody waits for it
    probe_ = enter<ExtensionRole>("probe", threads_, -1);
  }
  for (std::int32_t r = 0; r < replicas; ++r) {
    for (std::int32_t k = 0; k < b.schedule->options.stages; ++k) {
      gather_stage(r, k, *b.schedule);
    }
  }
  for (std::size_t c = 0; c < servers_.size(); ++c) {
    for (std::size_t s = 0; s < servers_[c].size(); ++s) {
      households_.push_back(
          {entries_[servers_[c][s].id].name, {{servers_[c][s].id, server_optimizers_[c][s].id}}});
    }
  }
  CopyNames names(b.experiment);
  for (Household& household : households_) {
    enter_copies(household, names.of(household.name));
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
  const bool alone = sections::replica_count(b.experiment) == 1;
  const bool own = sections::placement(b.experiment).optimizer() == proto::Placement::own;
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

/// The first stage has the source, too.
void Roster::gather_stage(std::int32_t r, std::int32_t k, const Schedule& schedule) {
  const Replica& replica = of(r);
  const ActorId stage = replica.stages[static_cast<std::size_t>(k)].id;
  std::vector<ActorId> members{stage};
  if (k == 0) {
    members.push_back(replica.source.id);
  }
  for (std::int32_t c = 0; c < schedule.chunks; ++c) {
    if (schedule.stage_of(c) == k) {
      members.push_back(replica.shards[static_cast<std::size_t>(c)].id);
      members.push_back(replica.optimizers[static_cast<std::size_t>(c)].id);
    }
  }
  for (const PredictorSeat& predictor : replica.predictors) {
    if (schedule.stage_of(predictor.chunk) == k) {
      members.insert(members.end(),
                     {predictor.self.id, predictor.shard.id, predictor.optimizer.id});
    }
  }
  households_.push_back({entries_[stage].name, {std::move(members)}});
}

/// `count` with the first. Each has threads of its own, which its machines share as those of the first do.
void Roster::enter_copies(Household& household, int count) {
  const std::vector<ActorId> first = household.seats.front();
  for (int copy = 1; copy < count; ++copy) {
    std::map<int, int> threads;
    std::vector<ActorId>& seat = household.seats.emplace_back();
    for (const ActorId id : first) {
      Entry entry = entries_[id];
      entry.name += concat("-copy-", copy);
      entry.thread = threads.try_emplace(entry.thread, threads_).first->second;
      threads_ = std::max(threads_, entry.thread + 1);
      seat.push_back(static_cast<ActorId>(entries_.size()));
      entries_.push_back(std::move(entry));
    }
  }
}

std::vector<ActorId> Roster::copies_of(ActorId first) const {
  for (const Household& household : households_) {
    const std::vector<ActorId>& firsts = household.seats.front();
    const auto found = std::ranges::find(firsts, first);
    if (found == firsts.end()) {
      continue;
    }
    return mapped<ActorId>(household.seats, [&](const std::vector<ActorId>& seat) {
      return seat[static_cast<std::size_t>(found - firsts.begin())];
    });
  }
  return {first};
}

std::vector<Ref<ShardRole>> Roster::peers(std::int32_t chunk) const {
  return mapped<Ref<ShardRole>>(replicas_, [&](const Replica& replica) {
    return replica.shards[static_cast<std::size_t>(chunk)];
  });
}

std::vector<Ref<StageRole>> Roster::stage_of_chunks(std::int32_t replica,
                                                    const Schedule& schedule) const {
  return tabulated<Ref<StageRole>>(schedule.chunks, [&](std::int32_t c) {
    return of(replica).stages[static_cast<std::size_t>(schedule.stage_of(c))];
  });
}

std::vector<Ref<ServerRole>> Roster::servers_of_group(std::int32_t chunk,
                                                      std::int32_t group) const {
  return mapped<Ref<ServerRole>>(
      groups_[static_cast<std::size_t>(chunk)],
      [&](const auto& of_slice) { return of_slice.at(static_cast<std::size_t>(group)).server; });
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
      for (std::int32_t r = 0; r < sections::replica_count(e) && !of_slice.empty(); ++r) {
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
