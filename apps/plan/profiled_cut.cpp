#include "apps/plan/profiled_cut.hpp"

#include "apps/plan/forecast.hpp"
#include "apps/plan/memory.hpp"
#include "apps/topologies/checks.hpp"
#include "experiment.pb.h"
#include "kernels/sequences.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

namespace troupe {
namespace {

constexpr std::int32_t kChunksOfPipe = 2;     // with one, stages would be replicas of the network
constexpr int kBlocksMax = 4;                 // a stage, that a mixed pipe is made of
constexpr double kWorthMoreStaleness = 1.02;  // times the throughput

/// By stage, or part of one: how many chunks in depth it works on.
std::vector<std::int64_t> chunks_in_depth(const Blueprint& b) {
  const std::vector<std::int32_t>& placement = b.schedule->placement;
  std::vector<std::int64_t> all(static_cast<std::size_t>(b.schedule->options.stages));
  for (std::int32_t d = 0; d < b.depth(); ++d) {
    for (std::int32_t t = 0; t < b.schedule->width; ++t) {
      ++all[static_cast<std::size_t>(placement[static_cast<std::size_t>(b.first_chunk(d) + t)])];
    }
  }
  return all;
}

/// Equal shares of each device's memory for its chunks: the smallest; 0 where one is not known.
std::int64_t memory_share(const Blueprint& b) {
  std::int64_t least = 0;
  const std::vector<std::int64_t> in_depth = chunks_in_depth(b);
  for (const DeviceInfo& info : devices()) {
    std::int64_t chunks = 0;
    for (std::size_t i = 0; i < b.devices.size(); ++i) {
      chunks += b.devices[i] == info.device ? in_depth[i % in_depth.size()] : 0;
    }
    if (chunks > 0) {
      const auto share = static_cast<std::int64_t>(info.memory_bytes) / chunks;
      least = least == 0 ? share : std::min(least, share);
    }
  }
  return least;
}

bool fits_into_memory(const Blueprint& b) {
  const std::vector<DeviceInfo> all = devices();
  return std::all_of(all.begin(), all.end(), [&](const DeviceInfo& info) {
    return info.memory_bytes == 0 ||
           memory_needed(b, info.device) <= static_cast<double>(info.memory_bytes);
  });
}

/// `b` like this. Error where it is refused, as some policies refuse the delays of a deep pipe.
Result<Blueprint> arranged(Blueprint b, const Arrangement& how) {
  proto::Pipeline& pipeline = *b.experiment->mutable_pipeline();
  pipeline.mutable_cut()->Assign(how.cut.begin(), how.cut.end());
  pipeline.mutable_copies()->Assign(how.copies.begin(), how.copies.end());
  pipeline.mutable_stage_of()->Assign(how.stage_of.begin(), how.stage_of.end());
  TROUPE_TRY(check_experiment(b.experiment));
  TROUPE_TRY(schedule_blueprint(b));
  return b;
}

/// What a layer behind takes is added to `to`, with what it sends in the place of what `to` does.
void add(LayerProfile& to, const LayerProfile& behind) {
  to.forward += behind.forward;
  to.input_gradient += behind.input_gradient;
  to.weight_gradient += behind.weight_gradient;
  to.update += behind.update;
  to.addition += behind.addition;
  to.parameter_bytes += behind.parameter_bytes;
  to.saved_bytes += behind.saved_bytes;
  to.output_bytes = behind.output_bytes;
}

Arrangement arrangement_of(const ContiguousPlan& plan) {
  Arrangement how;
  bool alternates = false;
  for (const ContiguousPlan::Stage& stage : plan.stages) {
    how.copies.push_back(stage.replicas);
    alternates = alternates || stage.replicas > 1;
    if (stage.first > 0) {
      how.cut.push_back(stage.first);
    }
  }
  if (!alternates) {
    how.copies.clear();
  }
  return how;
}

Arrangement arrangement_of(const MixedPlan& plan) {
  Arrangement how;
  for (const MixedPlan::Chunk& chunk : plan.chunks) {
    how.stage_of.push_back(chunk.stage);
    if (chunk.first > 0) {
      how.cut.push_back(chunk.first);
    }
  }
  return how;
}

/// `b` as the first of `all` that no later one beats by 2 %, had each stage a core of its own: what is found is run elsewhere,
/// too. Where none is allowed and fits, Error (usage): why the first is not allowed, or where it is, `otherwise`.
Result<Blueprint> best_of(const Blueprint& b,
                          const std::vector<Arrangement>& all,
                          NetworkProfile profile,
                          Error otherwise) {
  profile.cores = 0;
  std::optional<Blueprint> best;
  double fastest = 0;
  for (const Arrangement& how : all) {
    auto candidate = arranged(b, how);
    if (!candidate && &how == &all.front()) {
      otherwise = candidate.error();
    }
    if (!candidate || !fits_into_memory(*candidate)) {
      continue;
    }
    const double rate = predict(*candidate, profile).samples_per_second;
    if (rate > kWorthMoreStaleness * fastest) {
      fastest = rate;
      best = *std::move(candidate);
    }
  }
  if (!best) {
    return otherwise;
  }
  return *std::move(best);
}

/// Seconds until `to`, the first part of a chunk in depth, or the last of its parts, can begin on what `from` made.
double handover_between(const Blueprint& b,
                        std::int32_t from,
                        std::int32_t to,
                        const NetworkProfile& profile) {
  const bool itself =
      b.schedule->width == 1 && b.schedule->stage_of(from) == b.schedule->stage_of(to);
  return itself ? 0 : profile.handover;
}

}  // namespace

NetworkProfile of_whole_layers(const Blueprint& b, const NetworkProfile& profile) {
  if (!b.grid) {
    return profile;
  }
  const auto width = static_cast<std::size_t>(b.schedule->width);
  NetworkProfile whole{.layers = {}, .flops = {}, .passes = profile.passes};
  for (std::size_t l = 0; l < b.network.layers.size(); ++l) {
    std::vector<LayerProfile> parts(width);
    std::vector<double> flops(width);
    for (std::size_t i = 0; i < profile.layers.size(); ++i) {
      if (b.grid->of_layer[i / width] == l) {
        add(parts[i % width], profile.layers[i]);
        flops[i % width] += profile.flops[i];
      }
    }
    const auto slowest = std::ranges::max_element(parts, {}, &LayerProfile::seconds);
    whole.layers.push_back(*slowest);
    whole.flops.push_back(flops[static_cast<std::size_t>(slowest - parts.begin())]);
  }
  return whole;
}

PartitionProblem partition_problem(const Blueprint& b, const NetworkProfile& profile) {
  // Open skips are in the outputs.
  PartitionProblem problem{.layers = of_whole_layers(b, profile).layers, .skips = {}};
  problem.stages = b.depth();
  problem.memory_max = memory_share(b);
  if (b.schedule->apart.empty()) {  // else all chunks have as many stages, and these as many chunks
    problem.replicas = b.schedule->copies;
  }
  problem.devices = problem.replicas.empty() ? 0 : b.schedule->options.stages;
  for (std::int32_t c = 0; c < b.schedule->chunks; ++c) {
    const ChunkMemory memory = memory_of(b, c);
    if (memory.weights > 0) {  // not so between two junctions, say
      // All in multiples of the weights, moments too.
      const double of_weights = memory.weights / static_cast<double>(memory.copies);
      const double copies = (memory.weights + memory.gradient + memory.moments) / of_weights;
      problem.parameter_copies =
          std::max(problem.parameter_copies, static_cast<std::int32_t>(std::ceil(copies)));
    }
    if (b.experiment->pipeline().activations() != proto::Pipeline::recompute) {
      problem.micro_batches =
          std::max(problem.micro_batches, static_cast<std::int32_t>(memory.stashes));
    }
  }
  return problem;
}

Result<std::vector<std::int64_t>> profiled_cut(const Blueprint& b, const NetworkProfile& profile) {
  auto plan = partition_contiguous(partition_problem(b, profile));
  TROUPE_TRY(plan);
  return arrangement_of(*plan).cut;
}

std::vector<Arrangement> profiled_arrangements(const Blueprint& b,
                                               const NetworkProfile& profile,
                                               std::int32_t chunks_min) {
  const Schedule& schedule = *b.schedule;
  const proto::Pipeline& pipeline = b.experiment->pipeline();
  std::vector<Arrangement> all;
  PartitionProblem problem = partition_problem(b, profile);
  if (const auto plan = partition_contiguous(problem)) {
    all.push_back({.cut = arrangement_of(*plan).cut,
                   .copies = {pipeline.copies().begin(), pipeline.copies().end()},
                   .stage_of = {pipeline.stage_of().begin(), pipeline.stage_of().end()}});
  }
  const bool may_have_fewer = !b.grid && !schedule.flushed && schedule.copies.empty() &&
                              schedule.chunks == schedule.options.stages &&
                              pipeline.stage_of().empty();
  problem.devices = schedule.options.stages;
  for (problem.stages = schedule.chunks - 1; may_have_fewer && problem.stages >= chunks_min;
       --problem.stages) {
    const auto plan = partition_contiguous(problem);
    Arrangement how = plan ? arrangement_of(*plan) : Arrangement{};
    if (std::accumulate(how.copies.begin(), how.copies.end(), std::int64_t{0}) == problem.devices) {
      all.push_back(std::move(how));
    }
  }
  return all;
}

Result<Blueprint> profiled_blueprint(const Blueprint& b, const NetworkProfile& profile) {
  const auto cut = profiled_cut(b, profile);
  return best_of(
      b,
      profiled_arrangements(b, profile, kChunksOfPipe),
      profile,
      cut ? Error{ErrorKind::usage, "partition: no profiled cut fits into memory"} : cut.error());
}

Result<Blueprint> mixed_blueprint(const Blueprint& b, const NetworkProfile& profile) {
  auto plain = arranged(b, {});
  TROUPE_TRY(plain);
  PartitionProblem problem = partition_problem(*plain, profile);
  std::vector<Arrangement> all;
  const auto contiguous = partition_contiguous(problem);
  if (contiguous) {
    Arrangement& how = all.emplace_back(arrangement_of(*contiguous));
    how.stage_of.resize(contiguous->stages.size());
    std::iota(how.stage_of.begin(), how.stage_of.end(), 0);
  }
  problem.memory_max = 0;  // depends on the number of chunks: looked at below
  for (int blocks = 2; blocks <= kBlocksMax; ++blocks) {
    const auto mixed = partition_mixed(problem, blocks);
    TROUPE_TRY(mixed);
    all.push_back(arrangement_of(*mixed));
  }
  return best_of(b,
                 all,
                 profile,
                 contiguous ? Error{ErrorKind::usage, "partition: no mixed cut fits into memory"}
                            : contiguous.error());
}

Result<Blueprint> measured_blueprint(const Blueprint& b) {
  const bool mixed = b.experiment->pipeline().partition() == proto::Pipeline::mixed;
  const auto profile = measure_layers(b);
  auto made = !profile ? Result<Blueprint>(profile.error())
              : mixed  ? mixed_blueprint(b, *profile)
                       : profiled_blueprint(b, *profile);
  if (!made) {
    return Error{made.error().kind, "pipeline.partition: " + made.error().message};
  }
  return made;
}

std::string list_text(const std::vector<std::int64_t>& numbers) {
  return "[" + joined(numbers, ",") + "]";
}

std::vector<ChunkTimes> chunk_times(const Blueprint& b, const NetworkProfile& profile) {
  std::vector<ChunkTimes> times(b.cut.size());
  const auto width = static_cast<std::size_t>(b.schedule->width);
  std::size_t before = 0;  // layers of each part
  for (std::size_t c = 0; c < b.cut.size(); ++c) {
    const std::size_t layers = b.chunks[c]->layers().size();
    for (std::size_t i = before; i < before + layers; ++i) {
      const LayerProfile& layer = profile.layers[i * width + c % width];
      times[c].forward += layer.forward;
      times[c].input_gradient += layer.input_gradient;
      times[c].weight_gradient += layer.weight_gradient;
      times[c].update += layer.update * b.schedule->options.micro_batches;
      times[c].update += layer.addition * (b.schedule->copies_of(static_cast<std::int32_t>(c)) - 1);
    }
    before += c % width + 1 == width ? layers : 0;
    // It takes the thread that works on a message, and the way there, where it is another thread's.
    times[c].forward += profile.handover;
    times[c].input_gradient += profile.handover;
    const auto chunk = static_cast<std::int32_t>(c);
    if (!b.schedule->is_head(chunk)) {
      times[c].link = handover_between(b, chunk, b.schedule->behind(chunk), profile);
    }
    if (!b.schedule->is_first(chunk)) {
      times[c].link_back = handover_between(b, chunk, b.schedule->before(chunk), profile);
    }
  }
  return times;
}

Throughput predict(const Blueprint& b, const NetworkProfile& profile) {
  Blueprint timed = b;
  timed.times = chunk_times(b, profile);
  const std::int32_t M = b.schedule->options.micro_batches;
  std::vector<double> stages(static_cast<std::size_t>(b.schedule->options.stages));
  double work = 0;  // of all threads, for a mini-batch
  for (std::size_t c = 0; c < timed.times.size(); ++c) {
    const ChunkTimes& t = timed.times[c];
    const auto chunk = static_cast<std::int32_t>(c);
    const double micro_batch = t.forward + t.input_gradient + t.weight_gradient;
    const double update = t.update / b.schedule->round_of(chunk);
    for (std::int32_t turn = 0; turn < b.schedule->copies_of(chunk); ++turn) {
      stages[static_cast<std::size_t>(b.schedule->in_turn(chunk, turn))] +=
          micro_batch / b.schedule->copies_of(chunk) + (turn == 0 ? update / M : 0);
    }
    work += M * micro_batch + update;
  }
  const Forecast forecast = troupe::forecast(timed);
  const double on_all_cores =
      profile.cores > 0
          ? work * static_cast<double>(b.experiment->replicas().count()) / profile.cores
          : 0;
  const double period = std::max(forecast.period, on_all_cores);
  const auto slowest = std::max_element(stages.begin(), stages.end());
  return {.slowest_stage = static_cast<std::int32_t>(slowest - stages.begin()),
          .slowest_seconds = *slowest,
          .samples_per_second = static_cast<double>(b.experiment->data().batch_size()) / period,
          .idle = 1 - (1 - forecast.idle_steady) * forecast.period / period};
}

}  // namespace troupe
