#include "apps/topologies/exchange.hpp"

#include "actors/exchange/alone.hpp"
#include "actors/exchange/group_reduction.hpp"
#include "actors/exchange/peers.hpp"
#include "actors/exchange/reduction.hpp"
#include "actors/exchange/shared_buffer.hpp"
#include "actors/exchange/upstream.hpp"
#include "experiment.pb.h"
#include "kernels/group_mean.hpp"
#include "kernels/wording.hpp"
#include "runtime/schemes/codecs/summed_link.hpp"
#include "runtime/schemes/exchanges/all_reduce.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace troupe {
namespace {

/// In the place of a replica, in a link's name: the same at all of them.
constexpr std::int32_t kAllReplicas = -2;

/// What the codec of what replicas send is made from.
CodecContext up_context(const Blueprint& b, std::int32_t c, std::size_t s) {
  const proto::Codecs& codecs = b.experiment->replicas().codec();
  RuleContext context = rule_context(b, c, s);
  return {.chosen = codecs.up(),
          .parts = std::move(context.parts),
          .elements = context.elements,
          .replicas = context.replicas,
          .feedback = keeps_residual(codecs)};
}

/// Of the chunk's slices where its shards add up numbers of a linear code, else none.
std::vector<SummedLink> summed_links(const Blueprint& b, std::int32_t c) {
  std::vector<SummedLink> links;
  const auto at = static_cast<std::size_t>(c);
  for (std::size_t s = 0; s < b.chunks[at]->layout().slice_sizes.size(); ++s) {
    auto code = make_sum_code(up_context(b, c, s));
    if (!code) {
      return {};
    }
    links.push_back({.code = std::move(code),
                     .feedback = keeps_residual(b.experiment->replicas().codec()),
                     .seed = static_cast<std::uint64_t>(b.experiment->seed()),
                     .name = link_name(kAllReplicas, c, s)});
  }
  return links;
}

/// Of each chunk: the first of those whose groups have a GPU in common with each other, also by way of third ones. GPUs that
/// are called the same may be of different hosts; then turns are kept that need not be.
std::vector<std::int32_t> first_in_common(const Blueprint& b) {
  std::map<Device, std::int32_t> first_on;
  std::vector<std::int32_t> first(static_cast<std::size_t>(b.schedule->chunks));
  std::iota(first.begin(), first.end(), 0);
  for (std::int32_t c = 0; c < b.schedule->chunks; ++c) {
    for (const Device device : devices_of_stage(b.experiment, b.schedule->stage_of(c))) {
      const std::int32_t other =
          first[static_cast<std::size_t>(first_on.try_emplace(device, c).first->second)];
      const std::int32_t own = first[static_cast<std::size_t>(c)];
      std::ranges::replace(first, std::max(own, other), std::min(own, other));
    }
  }
  return first;
}

/// The shard of replica 0 of the first chunk keeps the turns of those with which it has GPUs in common.
std::unique_ptr<Exchange> make_group_reduction(const Blueprint& b,
                                               const Roster& who,
                                               const ChunkOptimizer& rule,
                                               std::shared_ptr<GroupSums> sums,
                                               std::int32_t r,
                                               std::int32_t c) {
  const std::vector<std::int32_t> first = first_in_common(b);
  const std::int32_t keeper = first[static_cast<std::size_t>(c)];
  GroupReduction::Config config{.replica = r,
                                .replicas = static_cast<std::int32_t>(who.peers(c).size()),
                                .sums = std::move(sums),
                                .keeper = who.peers(keeper).front()};
  if (r == 0 && c == keeper) {
    GroupTurns::Config turns;
    for (std::int32_t other = c; other < b.schedule->chunks; ++other) {
      if (first[static_cast<std::size_t>(other)] == keeper) {
        turns.shards.emplace(other, who.peers(other));
      }
    }
    config.turns.emplace(std::move(turns));
  }
  return std::make_unique<GroupReduction>(rule, std::move(config));
}

Error no_group(std::int32_t stage, const std::string& why) {
  return usage_error(
      "replicas.exchange.synchronous.reduction: nccl for stage {} of all replicas: {}; use a "
      "placement.devices that gives each replica a GPU of its own, or reduction ring or tree",
      stage,
      why);
}

/// Of replicas that sum their gradients among themselves.
std::unique_ptr<Exchange> make_reduction(const Blueprint& b,
                                         const Roster& who,
                                         const ChunkOptimizer& rule,
                                         std::int32_t r,
                                         std::int32_t c) {
  const proto::Experiment& e = b.experiment;
  const bool recoded = codec_scheme(e.replicas().codec().up()).recoded;
  return std::make_unique<Reduction>(
      rule,
      GradientSum::Config{.how = *reduction_of(e),
                          .replica = r,
                          .peers = who.peers(c),
                          .recodes = recoded ? up_links(b, r, c) : std::vector<CodedLink>{}},
      summed_links(b, c));
}

}  // namespace

bool nobody_waits(const Blueprint& b) {
  return b.link->never_waits() || groups_of(b.experiment) > 0;
}

std::size_t tied_shares(const Blueprint& b, std::int32_t owner) {
  std::size_t shares = 0;
  for (const auto& chunk : b.chunks) {
    for (const BorrowedSlice& slice : chunk->borrowed()) {
      shares += slice.owner == owner ? 1 : 0;
    }
  }
  const std::size_t slices = b.chunks[static_cast<std::size_t>(owner)]->layout().slice_sizes.size();
  return shares + static_cast<std::size_t>(b.schedule->copies_of(owner) - 1) * slices;
}

std::shared_ptr<GroupSums> group_sums(const Blueprint& b, std::int32_t c) {
  return std::make_shared<GroupSums>(devices_of_stage(b.experiment, b.schedule->stage_of(c)),
                                     b.group_mean ? GroupMean(b.group_mean) : GroupMean(group_mean),
                                     b.groups.empty() ? "" : b.groups[static_cast<std::size_t>(c)]);
}

Result<void> check_group_sums(const proto::Experiment& e, bool several_processes) {
  for (std::int32_t k = 0; sums_in_group(e) && k < stage_actors(e); ++k) {
    if (auto able = check_group(devices_of_stage(e, k), several_processes); !able) {
      return no_group(k, able.error().message);
    }
  }
  return {};
}

Result<void> check_sums_of_one_machine(const Blueprint& b) {
  return b.group_mean ? Result<void>() : check_group_sums(b.experiment, false);
}

std::vector<std::string> name_groups(const Blueprint& b, const std::vector<int>& process_of) {
  std::vector<std::string> names;
  const Roster who(b);
  for (std::int32_t c = 0; sums_in_group(b.experiment) && c < b.schedule->chunks; ++c) {
    std::set<int> processes;
    for (const Ref<ShardRole> shard : who.peers(c)) {
      processes.insert(process_of[shard.id]);
    }
    names.push_back(processes.size() > 1 ? make_group_id() : "");
  }
  return names;
}

Result<void> check_gpus_apart(const Blueprint& b,
                              const Roster& who,
                              const std::vector<int>& process_of) {
  for (std::int32_t k = 0; sums_in_group(b.experiment) && k < stage_actors(b.experiment); ++k) {
    const std::vector<Device> devices = devices_of_stage(b.experiment, k);
    std::set<std::pair<int, Device>> taken;
    for (std::size_t r = 0; r < devices.size(); ++r) {
      const ActorId id = who.stages(static_cast<std::int32_t>(r))[static_cast<std::size_t>(k)].id;
      if (const int process = process_of[id]; !taken.emplace(process, devices[r]).second) {
        return no_group(k, fill_in("two of process {} are on {}", process, to_string(devices[r])));
      }
    }
  }
  return {};
}

std::shared_ptr<SharedWeights> shared_weights(const Blueprint& b, std::int32_t c, Stream& stream) {
  const proto::Experiment& e = b.experiment;
  auto shared = std::make_shared<SharedWeights>();
  shared->add = e.replicas().exchange().hogwild().add() == proto::Hogwild::racy ? SharedAdd::racy
                                                                                : SharedAdd::atomic;
  const auto replicas = static_cast<std::int32_t>(e.replicas().count());
  for (const Tensor& slice : starting_slices(stream, b, static_cast<std::size_t>(c))) {
    shared->slices.push_back(std::make_unique<SharedBuffer>(slice.elements(), replicas));
    shared_store(stream, *shared->slices.back(), slice);
  }
  return shared;
}

std::unique_ptr<Exchange> make_exchange(const Blueprint& b,
                                        const Roster& who,
                                        const ChunkOptimizer& rule,
                                        const SharedByReplicas& shared,
                                        std::int32_t r,
                                        std::int32_t c) {
  const proto::Experiment& e = b.experiment;
  if (b.link) {
    const bool grouped = groups_of(e) > 0;  // then codecs are between servers
    std::vector<std::shared_ptr<const Codec>> down;
    const bool whole = codec_scheme(e.replicas().codec().down()).whole;
    for (std::size_t s = 0; s < who.servers(c).size(); ++s) {
      if (DownLink link = down_link(b, c, s); link && !grouped) {
        down.push_back(std::move(link.link.codec));
      }
    }
    const auto above = who.servers(c);
    return make_upstream(
        Upstream::Config{.self = who.shards(r)[static_cast<std::size_t>(c)],
                         .replica = r,
                         .chunk = c,
                         .rule = rule,
                         .link = *b.link,
                         .servers = grouped ? who.servers_of_group(c, group_of(e, r)) : above,
                         .evaluated = above,
                         .encodes = !up_links(b, r, c).empty(),
                         .down = std::move(down),
                         .down_whole = whole,
                         .turns = fragment_turns(b, c)});
  }
  if (shared_by(e) == Shared::buffer) {
    return std::make_unique<SharedBufferExchange>(
        SharedBufferExchange::Config{.replica = r,
                                     .chunk = c,
                                     .shared = shared.weights[static_cast<std::size_t>(c)],
                                     .rule = rule,
                                     .evaluation = evaluation_plan(b),
                                     .updates = b.batches,
                                     .director = who.director()});
  }
  if (sums_in_group(e)) {
    return make_group_reduction(b, who, rule, shared.sums[static_cast<std::size_t>(c)], r, c);
  }
  if (reduction_of(e)) {
    return make_reduction(b, who, rule, r, c);
  }
  const ExchangeScheme& scheme = exchange_of(e);
  if (!scheme.peer || e.replicas().count() == 1) {
    return std::make_unique<Alone>(rule);
  }
  const OptionValues options(scheme.info.options, e.replicas().exchange().custom());
  auto own =
      scheme.peer({.replica = r,
                   .chunk = c,
                   .rule = rule,
                   .peers = who.peers(c),
                   .options = options,
                   .seed = e.seed(),
                   .evaluation = evaluation_plan(b),
                   .mean = scheme.evaluated == Evaluated::mean,
                   .director = who.director(),
                   .batches = b.batches,
                   .links = has_coded_peers(e) ? up_links(b, r, c) : std::vector<CodedLink>{},
                   .experiment = &e});
  TROUPE_CHECK(own, "exchange ", scheme.info.name, ": its factory made nothing");
  return own;
}

DownLink down_link(const Blueprint& b, std::int32_t c, std::size_t s) {
  const proto::Codecs& codecs = b.experiment->replicas().codec();
  DownLink down{.whole = codec_scheme(codecs.down()).whole};
  RuleContext context = rule_context(b, c, s);
  down.link = {.codec = make_codec({.chosen = codecs.down(),
                                    .parts = std::move(context.parts),
                                    .elements = context.elements,
                                    .replicas = context.replicas,
                                    .feedback = !down.whole,
                                    .down = true}),
               .seed = static_cast<std::uint64_t>(b.experiment->seed()),
               .name = link_name(-1, c, s)};
  return down;
}

std::shared_ptr<const Codec> up_codec(const Blueprint& b, std::int32_t c, std::size_t s) {
  if (!b.link && !has_coded_peers(b.experiment) && !reduction_of(b.experiment)) {
    return nullptr;
  }
  return make_codec(up_context(b, c, s));
}

CodedLink up_link(const Blueprint& b, std::int32_t sender, std::int32_t c, std::size_t s) {
  return {.codec = up_codec(b, c, s),
          .feedback = keeps_residual(b.experiment->replicas().codec()),
          .seed = static_cast<std::uint64_t>(b.experiment->seed()),
          .name = link_name(sender, c, s),
          .weight_decay =
              decays_at_replicas(b.experiment) ? b.experiment->optimizer().weight_decay() : 0};
}

std::vector<CodedLink> up_links(const Blueprint& b, std::int32_t r, std::int32_t c) {
  if (groups_of(b.experiment) > 0) {
    return {};
  }
  std::vector<CodedLink> links;
  const auto at = static_cast<std::size_t>(c);
  for (std::size_t s = 0; s < b.chunks[at]->layout().slice_sizes.size(); ++s) {
    CodedLink link = up_link(b, r, c, s);
    if (!link) {
      return {};
    }
    links.push_back(std::move(link));
  }
  return links;
}

proto::Experiment own_optimizer(const Blueprint& b) {
  proto::Experiment own = b.experiment;
  if (b.link && b.link->steps() && b.link->travel == Travel::gradient) {
    own.mutable_optimizer()->set_rule(proto::OptimizerRule::sgd);
  }
  return own;
}

}  // namespace troupe
