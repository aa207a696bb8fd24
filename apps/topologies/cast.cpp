#include "apps/topologies/cast.hpp"

#include "apps/topologies/casting.hpp"
#include "apps/topologies/exchange.hpp"
#include "apps/topologies/extension.hpp"
#include "apps/topologies/hosts.hpp"
#include "apps/topologies/probe.hpp"
#include "apps/topologies/servers.hpp"
#include "experiment.pb.h"
#include "runtime/data/sharding.hpp"
#include "runtime/schemes/exchanges/all_reduce.hpp"
#include "runtime/system/callers.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

Casting::Casting(const Blueprint& blueprint, bool alike)
    : b_(blueprint),
      alike_(alike),
      e_(b_.experiment),
      schedule_(*b_.schedule),
      who_(b_),
      replicas_(static_cast<std::int32_t>(e_.replicas().count())),
      stages_(schedule_.options.stages),
      hogwild_(shared_by(e_) == Shared::buffer),
      peers_(replicas_ > 1 && exchange_of(e_).peer != nullptr),
      decoupled_(decoupled_of(e_)),
      samples_(static_cast<std::size_t>(replicas_)),
      shuffles_(std::make_shared<Shuffles>(b_.data->size(Split::train), e_.seed())) {
  const proto::Experiment own = own_optimizer(b_);
  const Rate rate = rate_of(b_);
  for (std::int32_t c = 0; c < schedule_.chunks; ++c) {
    const std::int64_t delay = schedule_.delay[static_cast<std::size_t>(c)];
    rules_.emplace_back(own, rate, delay, synchronous_batches(b_));
    shared_.weights.push_back(hogwild_ ? shared_weights(b_, c, streams_on_.on({})) : nullptr);
    if (sums_in_group(e_)) {
      shared_.sums.push_back(group_sums(b_, c));
    }
  }
  if (e_.replicas().split() == proto::Replicas::by_label && replicas_ > 1) {
    samples_ = blocks_by_label(*b_.data, replicas_);
  }
}

Cast Casting::all() {
  for (std::int32_t r = 0; r < replicas_; ++r) {
    add_source(r);
    if (r == 0) {
      add_director();
    }
    add_workers(r);
    for (const Roster::PredictorSeat& predictor : who_.predictors(r)) {
      cast_.starting.push_back(predictor.self.id);
    }
    cast_.starting.push_back(who_.source(r).id);
    for (const auto& stage : who_.stages(r)) {
      cast_.starting.push_back(stage.id);
    }
  }
  if (served()) {
    add_servers();
  }
  if (const auto probe = who_.probe()) {
    add(probe->id, make_probe(b_, streams_on_.on({})), {}, b_.precision);
  }
  cast_.director = who_.director();
  add_copies();
  cast_.threads = who_.threads();
  if (!shared_.sums.empty()) {
    cast_.over = [sums = shared_.sums] {
      for (const auto& of_chunk : sums) {
        of_chunk->end();
      }
    };
  }
  join_extension(cast_, b_, who_);
  streams_on_ = {};
  starting_.clear();
  return std::move(cast_);
}

/// All of a replica but its source.
void Casting::add_workers(std::int32_t r) {
  for (std::int32_t k = 0; k < stages_; ++k) {
    add_stage(r, k);
  }
  for (std::int32_t c = 0; c < schedule_.chunks; ++c) {
    add_shard(r, c);
  }
  for (std::int32_t c = 0; c < schedule_.chunks; ++c) {
    add_optimizer(r, c);
  }
  for (const Roster::PredictorSeat& seat : who_.predictors(r)) {
    add_predictor(r, seat);
  }
}

/// Further copies are the machines of casts that were made alike, and think that they are the first.
void Casting::add_copies() {
  std::size_t most = 1;
  for (const Roster::Household& household : who_.households()) {
    most = std::max(most, household.seats.size());
  }
  if (most == 1 || alike_) {
    return;
  }
  std::map<ActorId, Cast::Member> further;
  std::vector<Copies> all;
  for (std::size_t copy = 1; copy < most; ++copy) {
    Cast alike = Casting(b_, true).all();  // one at a time: what has no such copy goes at once
    for (const Roster::Household& household : who_.households()) {
      for (std::size_t i = 0; copy < household.seats.size() && i < household.seats[copy].size();
           ++i) {
        further[household.seats[copy][i]] = std::move(alike.members[household.seats.front()[i]]);
      }
    }
  }
  for (auto& [id, made] : further) {
    add(id, std::move(made.machine), made.device, made.precision);
  }
  for (const Roster::Household& household : who_.households()) {
    if (household.seats.size() > 1) {
      all.push_back({.name = household.name, .seats = household.seats});
    }
  }
  join_copies(cast_, std::move(all));
}

std::vector<Cast::Replacement> Casting::make_replacements(std::int32_t r) {
  returns_ = true;
  add_source(r);
  add_workers(r);
  streams_on_ = {};
  starting_.clear();
  return std::exchange(replacements_, {});
}

void Casting::add(ActorId id,
                  std::unique_ptr<Machine> machine,
                  Device device,
                  Precision precision,
                  std::int32_t stage) {
  if (returns_) {
    replacements_.push_back({id, std::move(machine)});
    return;
  }
  TROUPE_CHECK(id == cast_.members.size(), "members are made in the order of the roster");
  const Roster::Entry& entry = who_.entries()[id];
  cast_.members.push_back({.name = entry.name,
                           .machine = std::move(machine),
                           .thread = entry.thread,
                           .device = device,
                           .precision = precision,
                           .replica = entry.replica,
                           .stage = stage});
}

Cast build_cast(const Blueprint& blueprint) {
  const auto casting = std::make_shared<Casting>(blueprint);
  Cast cast = casting->all();
  if (blueprint.link) {
    cast.make_replacements = [casting](std::int32_t replica) {
      return casting->make_replacements(replica);
    };
  }
  return cast;
}

}  // namespace troupe
