#include "apps/topologies/servers.hpp"

#include "actors/server_optimizer.hpp"
#include "actors/server_shard.hpp"
#include "apps/topologies/exchange.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace troupe {
namespace {

/// The predictions that a chunk's plan asks for, whenever.
std::vector<Reach> all_reaches(const ViewPlan& plan) {
  std::set<Reach> reaches(plan.steady.begin(), plan.steady.end());
  for (const std::vector<Reach>& early : plan.early) {
    reaches.insert(early.begin(), early.end());
  }
  return {reaches.begin(), reaches.end()};
}

/// Evaluations that may be due between the steps of two servers. Each applies what comes to it, so one
/// is ahead of another by the pushes of mini-batches of which a part is under way.
std::int64_t pins_between(const Blueprint& b, const Roster& who) {
  const std::int64_t every = b.evaluate_every;
  if (every == 0 || who.all_servers().size() == 1) {
    return 0;
  }
  const std::int64_t of_a_replica = b.schedule->delay_max + 1 + b.link->push_every;
  const std::int64_t steps =
      b.experiment.replicas().count() * of_a_replica / b.batches_per_update + 1;
  return steps / every + 1;
}

}  // namespace

ServerMachines make_server(
    const Blueprint& b, const Roster& who, std::int32_t c, std::size_t s, Tensor initial) {
  const Schedule& schedule = *b.schedule;
  const proto::Record& record = b.experiment.record();
  const RuleContext context = rule_context(b, c, s);
  std::int64_t parameters = 0;
  for (const RuleContext::Part& part : context.parts) {
    parameters += part.shape.elements();
  }
  Rule rule = make_rule(context);
  const Link& link = *b.link;
  const Ref<ServerRole> self = who.servers(c)[s];
  const std::vector<Ref<ServerRole>> all = who.all_servers();
  // The last chunk's server hears first of a mini-batch's gradients.
  const Ref<ServerRole> decider = who.servers(schedule.chunks - 1).front();
  const bool one_decides = all.size() > 1 && (rule.admission->servers_may_differ() || link.dynamic);
  std::vector<Ref<ServerRole>> followers;
  if (one_decides && self.id == decider.id) {
    std::copy_if(all.begin(), all.end(), std::back_inserter(followers), [&](const auto& one) {
      return one.id != decider.id;
    });
  }
  const std::shared_ptr<const Codec> up = up_codec(b, c, s);
  DownLink down = down_link(b, c, s);
  auto shard = std::make_unique<ServerShard>(ServerShard::Config{
      .self = self,
      .chunk = c,
      .slice = s,
      .optimizer = who.server_optimizer(c, s),
      .admission = std::move(rule.admission),
      .needs_read = rule.scale->needs_read(),
      .rate = rate_of(b),
      .replicas_step = link.steps && link.travel != Travel::gradient,
      .reaches =
          link.steps ? std::vector<Reach>{} : all_reaches(b.plans[static_cast<std::size_t>(c)]),
      .replicas = who.peers(c),
      .batches_per_update = b.batches_per_update,
      .updates = b.batches,
      .evaluation = {record.evaluate() ? b.evaluate_every : 0},
      .gap_every = record.gap_every(),
      .period = link.dynamic ? link.push_every : 0,
      .streams = link.streams,
      .together = !schedule.flushed && schedule.chunks > schedule.options.stages,
      .followers = std::move(followers),
      .follows = one_decides && self.id != decider.id,
      .pins_between = one_decides ? 0 : pins_between(b, who),
      .announces = c == 0 && s == 0,
      .director = who.director(),
      .initial = std::move(initial),
      .up = up,
      .up_remembers = up && remembers_messages(b.experiment.replicas().codec()),
      .down = static_cast<bool>(down),
      .down_whole = down.whole});
  auto optimizer =
      std::make_unique<ServerOptimizer>(ServerOptimizer::Config{.stage = schedule.stage_of(c),
                                                                .parameters = parameters,
                                                                .scale = std::move(rule.scale),
                                                                .step = std::move(rule.step),
                                                                .up = up,
                                                                .down = std::move(down)});
  return {std::move(shard), std::move(optimizer)};
}

}  // namespace troupe
