#include "apps/topologies/servers.hpp"

#include "actors/server/server_optimizer.hpp"
#include "actors/server/server_shard.hpp"
#include "apps/topologies/exchange.hpp"
#include "experiment/replicas.pb.h"
#include "experiment/run.pb.h"
#include "kernels/sequences.hpp"
#include "messages/sections.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

namespace troupe {
namespace {

constexpr std::size_t kMomentsMax = 16;  // that an optimizer keeps of a slice
constexpr std::int64_t kLateMax =
    1000;  // periods that a replica goes on for while it has no answer

/// Mini-batches that one push stands for, at most.
std::int64_t push_most(const Link& link, bool of_groups) {
  const std::int64_t overlap = link.streaming() ? link.streaming()->overlap
                               : link.rebases() ? 1
                                                : 0;
  if (of_groups || link.never_waits()) {
    return kLateMax * (link.push_every + overlap);
  }
  return link.streaming() ? 2 * link.push_every + overlap : link.push_every;
}

std::vector<Ref<ServerRole>> servers_of(const std::vector<Roster::GroupSeat>& groups) {
  return mapped<Ref<ServerRole>>(groups,
                                 [&](const Roster::GroupSeat& seat) { return seat.server; });
}

std::int64_t parameters_of(const RuleContext& context) {
  std::int64_t parameters = 0;
  for (const RuleContext::Part& part : context.parts) {
    parameters += part.shape.elements();
  }
  return parameters;
}

/// Evaluations that may be due between the steps of two servers. Each applies what comes to it, so one
/// is ahead of another by the pushes of mini-batches of which a part is under way.
std::int64_t pins_ahead(const Blueprint& b, const Roster& who) {
  const std::int64_t every = b.evaluate_every;
  if (every == 0 || who.all_servers().size() == 1) {
    return 0;
  }
  // The first push of a fragment comes up to a period after that of another.
  const std::int64_t turns = b.link->streaming() && b.link->streaming()->fragments ? 2 : 1;
  const std::int64_t of_a_replica = b.schedule->delay_max + 1 + turns * b.link->push_every;
  const std::int64_t steps =
      sections::replica_count(b.experiment) * of_a_replica / b.batches_per_update + 1;
  return steps / every + 1;
}

/// Whether one of several servers decides for all, as they could decide apart: then it is the first one of the last
/// chunk.
bool one_decides(const Blueprint& b) {
  const Rule rule = make_rule(rule_context(b, 0, 0));
  const Link& link = *b.link;
  std::size_t servers = 0;
  for (const auto& chunk : b.chunks) {
    servers += chunk->layout().slice_sizes.size();
  }
  return servers > 1 &&
         (rule.admission->servers_may_differ() || (link.dynamic && !link.never_waits()));
}

struct ServerMachines {
  std::unique_ptr<Machine> shard;
  std::unique_ptr<Machine> optimizer;
};

/// Of slice `s` of chunk `c`, which begins as `initial` (n).
ServerMachines make_server(
    const Blueprint& b, const Roster& who, std::int32_t c, std::size_t s, Tensor initial) {
  const Schedule& schedule = *b.schedule;
  const proto::Record& record = sections::record(b.experiment);
  const RuleContext context = rule_context(b, c, s);
  Rule rule = make_rule(context);
  const Link& link = *b.link;
  const Ref<ServerRole> self = who.servers(c)[s];
  const std::vector<Ref<ServerRole>> all = who.all_servers();
  // The last chunk's server hears first of a mini-batch's gradients.
  const Ref<ServerRole> decider = who.servers(schedule.chunks - 1).front();
  const bool decides = one_decides(b);
  std::vector<Ref<ServerRole>> followers;
  if (decides && self.id == decider.id) {
    std::copy_if(all.begin(), all.end(), std::back_inserter(followers), [&](const auto& one) {
      return one.id != decider.id;
    });
  }
  const std::shared_ptr<const Codec> up = up_codec(b, c, s);
  DownLink down = down_link(b, c, s);
  std::optional<Majority> votes;
  if (up && takes_votes(sections::replicas(b.experiment).codec())) {
    votes = {.seed = static_cast<std::uint64_t>(sections::seed(b.experiment)),
             .name = link_name(-1, c, s)};
  }
  const LocalLink* local = link.local();
  const std::size_t values =
      local && local->before && !up ? 2 : 1;  // with a codec its message alone
  auto shard = std::make_unique<ServerShard>(ServerShard::Config{
      .self = self,
      .chunk = c,
      .slice = s,
      .optimizer = who.server_optimizer(c, s),
      .admission = std::move(rule.admission),
      .needs_read = rule.scale->needs_read(),
      .rate = rate_of(b),
      .steps_before_update = link.rebases(),
      .replica_optimizers = link.steps() && link.travel != Travel::gradient,
      .reaches =
          link.steps() ? std::vector<Reach>{} : all_reaches(b.plans[static_cast<std::size_t>(c)]),
      .replicas = who.groups(c, s).empty() ? who.peers(c) : std::vector<Ref<ShardRole>>{},
      .below = servers_of(who.groups(c, s)),
      .batches_per_update = b.batches_per_update,
      .updates = b.batches,
      .evaluation = record.evaluate() ? evaluation_plan(b) : EvaluationPlan{},
      .gap_every = record.gap_every(),
      .period = link.dynamic ? link.push_every : 0,
      .slices_take_turns = link.streaming() != nullptr,
      .never_waits = link.never_waits(),
      .shares_stage = !schedule.flushed && schedule.chunks > schedule.options.stages,
      .followers = std::move(followers),
      .follows = decides && self.id != decider.id,
      .pins_ahead = decides ? 0 : pins_ahead(b, who),
      .announces = c == 0 && s == 0,
      .director = who.director(),
      .initial = std::move(initial),
      .up = up,
      .push_tensors_min = values,
      .push_tensors_max =
          values + (local && local->moments == LocalLink::Moments::travel ? kMomentsMax : 0),
      .push_mini_batches_max = push_most(link, !who.groups(c, s).empty()),
      .up_has_memory = up && remembers_messages(sections::replicas(b.experiment).codec()),
      .down = static_cast<bool>(down),
      .down_whole = down.whole});
  auto optimizer = std::make_unique<ServerOptimizer>(
      ServerOptimizer::Config{.stage = schedule.stage_of(c),
                              .parameters = parameters_of(context),
                              .scale = std::move(rule.scale),
                              .step = std::move(rule.step),
                              .up = up,
                              .down = std::move(down),
                              .votes = votes});
  return {std::move(shard), std::move(optimizer)};
}

/// Of a group of replicas, under the one of all.
ServerMachines make_group_server(const Blueprint& b,
                                 const Roster& who,
                                 std::int32_t c,
                                 std::size_t s,
                                 std::int32_t group,
                                 Tensor initial) {
  const proto::Experiment& e = b.experiment;
  const RuleContext context = rule_context(b, c, s);
  GroupServer how = group_server_of(context);
  const Roster::GroupSeat& seat = who.groups(c, s).at(static_cast<std::size_t>(group));
  std::vector<bool> members =
      tabulated<bool>(static_cast<std::int32_t>(sections::replica_count(e)),
                      [&](std::int32_t r) { return group_of(e, r) == group; });
  const auto size = std::count(members.begin(), members.end(), true);
  const DownLink down = down_link(b, c, s);
  CodedLink up = up_link(b, group, c, s);
  // Its steps are as many as the run's: one for a mini-batch of each of its replicas.
  auto shard = std::make_unique<ServerShard>(
      ServerShard::Config{.self = seat.server,
                          .chunk = c,
                          .slice = s,
                          .optimizer = seat.optimizer,
                          .admission = std::move(how.rule.admission),
                          .rate = rate_of(b),
                          .replica_optimizers = true,
                          .reaches = {},
                          .replicas = who.peers(c),
                          .above = Above::Config{.server = who.servers(c)[s],
                                                 .group = group,
                                                 .accumulate = how.accumulate,
                                                 .merge = how.merge,
                                                 .chunk = c,
                                                 .slice = s,
                                                 .members = std::move(members),
                                                 .alone = who.all_servers().size() == 1,
                                                 .down = down.link.codec,
                                                 .down_whole = down.whole},
                          .batches_per_update = size,
                          .evaluation = {},
                          .director = who.director(),
                          .initial = std::move(initial)});
  auto optimizer = std::make_unique<ServerOptimizer>(
      ServerOptimizer::Config{.stage = b.schedule->stage_of(c),
                              .parameters = parameters_of(context),
                              .scale = std::move(how.rule.scale),
                              .step = std::move(how.rule.step),
                              .above = std::move(up)});
  return {std::move(shard), std::move(optimizer)};
}

void seat(std::vector<ServerSeat>& all,
          ActorId server,
          ActorId optimizer,
          ServerMachines machines,
          Device device) {
  all.push_back({server, std::move(machines.shard), device});
  all.push_back({optimizer, std::move(machines.optimizer), device});
}

/// Calls f(chunk, slice, weights that it begins with (n), device) for every server.
template <class F>
void for_each_server(const Blueprint& b, InitialStreams& streams, F f) {
  for (std::int32_t c = 0; c < b.schedule->chunks; ++c) {
    const Device device = b.devices[static_cast<std::size_t>(b.schedule->stage_of(c))];
    const auto initial = starting_slices(streams.on(device), b, static_cast<std::size_t>(c));
    for (std::size_t s = 0; s < initial.size(); ++s) {
      f(c, s, initial[s], device);
    }
  }
}

}  // namespace

std::vector<Reach> all_reaches(const ViewPlan& plan) {
  std::set<Reach> reaches(plan.steady.begin(), plan.steady.end());
  for (const std::vector<Reach>& early : plan.early) {
    reaches.insert(early.begin(), early.end());
  }
  return {reaches.begin(), reaches.end()};
}

std::vector<ServerSeat> make_servers(const Blueprint& b,
                                     const Roster& who,
                                     InitialStreams& streams) {
  std::vector<ServerSeat> all;
  for_each_server(
      b, streams, [&](std::int32_t c, std::size_t s, const Tensor& initial, Device device) {
        seat(all,
             who.servers(c)[s].id,
             who.server_optimizer(c, s).id,
             make_server(b, who, c, s, initial),
             device);
        for (std::size_t g = 0; g < who.groups(c, s).size(); ++g) {
          const Roster::GroupSeat& of = who.groups(c, s)[g];
          seat(all,
               of.server.id,
               of.optimizer.id,
               make_group_server(b, who, c, s, static_cast<std::int32_t>(g), initial),
               device);
        }
      });
  return all;
}

}  // namespace troupe
