#include "apps/plan/profiled_cut.hpp"

#include "apps/plan/forecast.hpp"
#include "apps/plan/memory.hpp"
#include "experiment.pb.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace troupe {
namespace {

constexpr int kBlocksMax = 4;              // a stage, that a mixed pipe is made of
constexpr double kWorthMoreChunks = 1.02;  // times the throughput

/// Equal shares of each device's memory for its chunks: the smallest; 0 where one is not known.
std::int64_t memory_share(const Blueprint& b) {
  std::int64_t least = 0;
  for (const DeviceInfo& info : devices()) {
    std::int64_t chunks = 0;
    for (std::size_t i = 0; i < b.devices.size(); ++i) {
      const auto stage = static_cast<std::int32_t>(i) % b.schedule->options.stages;
      const auto& placement = b.schedule->placement;
      chunks +=
          b.devices[i] == info.device ? std::count(placement.begin(), placement.end(), stage) : 0;
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

/// `b`, cut and placed like this.
Result<Blueprint> arranged(Blueprint b, const std::vector<MixedPlan::Chunk>& chunks) {
  proto::Pipeline& pipeline = *b.experiment.mutable_pipeline();
  pipeline.clear_cut();
  pipeline.clear_stage_of();
  for (const MixedPlan::Chunk& chunk : chunks) {
    pipeline.add_stage_of(chunk.stage);
    if (chunk.first > 0) {
      pipeline.add_cut(chunk.first);
    }
  }
  TROUPE_TRY(schedule_blueprint(b));
  return b;
}

}  // namespace

PartitionProblem partition_problem(const Blueprint& b, const NetworkProfile& profile) {
  PartitionProblem problem{.layers = profile.layers, .skips = {}};  // open skips are in the outputs
  problem.stages = b.schedule->chunks;
  problem.memory_max = memory_share(b);
  for (std::int32_t c = 0; c < b.schedule->chunks; ++c) {
    const ChunkMemory memory = memory_of(b, c);
    // All in multiples of the weights, moments too.
    const double of_weights = memory.weights / static_cast<double>(memory.copies);
    const double copies = (memory.weights + memory.gradient + memory.moments) / of_weights;
    problem.parameter_copies =
        std::max(problem.parameter_copies, static_cast<std::int32_t>(std::ceil(copies)));
    if (b.experiment.pipeline().activations() != proto::Pipeline::recompute) {
      problem.micro_batches =
          std::max(problem.micro_batches, static_cast<std::int32_t>(memory.stashes));
    }
  }
  return problem;
}

Result<std::vector<std::int64_t>> profiled_cut(const Blueprint& b, const NetworkProfile& profile) {
  auto plan = partition_contiguous(partition_problem(b, profile));
  TROUPE_TRY(plan);
  std::vector<std::int64_t> cut;
  for (std::size_t c = 1; c < plan->stages.size(); ++c) {
    cut.push_back(plan->stages[c].first);
  }
  return cut;
}

Result<std::vector<std::int64_t>> measured_cut(const Blueprint& b) {
  const auto profile = measure_layers(b);
  auto cut =
      profile ? profiled_cut(b, *profile) : Result<std::vector<std::int64_t>>(profile.error());
  if (!cut) {
    return Error{cut.error().kind, "pipeline.partition: " + cut.error().message};
  }
  return cut;
}

Result<Blueprint> mixed_blueprint(const Blueprint& b, const NetworkProfile& profile) {
  auto plain = arranged(b, {});
  TROUPE_TRY(plain);
  PartitionProblem problem = partition_problem(*plain, profile);
  std::vector<std::vector<MixedPlan::Chunk>> candidates;
  const auto contiguous = partition_contiguous(problem);
  if (contiguous) {
    auto& chunks = candidates.emplace_back();
    for (const ContiguousPlan::Stage& stage : contiguous->stages) {
      chunks.push_back({stage.first, stage.last, static_cast<std::int32_t>(chunks.size())});
    }
  }
  problem.memory_max = 0;  // depends on the number of chunks: looked at below
  for (int blocks = 2; blocks <= kBlocksMax; ++blocks) {
    const auto mixed = partition_mixed(problem, blocks);
    TROUPE_TRY(mixed);
    candidates.push_back(mixed->chunks);
  }
  std::optional<Blueprint> best;
  double fastest = 0;
  for (const std::vector<MixedPlan::Chunk>& chunks : candidates) {
    // Some policies refuse the delays of a deep pipe.
    auto candidate = arranged(b, chunks);
    if (!candidate || !fits_into_memory(*candidate)) {
      continue;
    }
    const double rate = predict(*candidate, profile).samples_per_second;
    if (rate > kWorthMoreChunks * fastest) {
      fastest = rate;
      best = *std::move(candidate);
    }
  }
  if (!best) {
    return contiguous ? Error{ErrorKind::usage, "partition: no mixed cut fits into memory"}
                      : contiguous.error();
  }
  return *std::move(best);
}

Result<Blueprint> measured_mix(const Blueprint& b) {
  const auto profile = measure_layers(b);
  auto mix = profile ? mixed_blueprint(b, *profile) : Result<Blueprint>(profile.error());
  if (!mix) {
    return Error{mix.error().kind, "pipeline.partition: " + mix.error().message};
  }
  return mix;
}

std::string list_text(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (const std::int64_t number : numbers) {
    text += concat(text.empty() ? "" : ",", number);
  }
  return "[" + text + "]";
}

std::vector<ChunkTimes> chunk_times(const Blueprint& b, const NetworkProfile& profile) {
  std::vector<ChunkTimes> times(b.cut.size());
  for (std::size_t c = 0; c < b.cut.size(); ++c) {
    const auto last =
        c + 1 < b.cut.size() ? static_cast<std::size_t>(b.cut[c + 1]) : profile.layers.size();
    for (auto i = static_cast<std::size_t>(b.cut[c]); i < last; ++i) {
      const LayerProfile& layer = profile.layers[i];
      times[c].forward += layer.forward;
      times[c].input_gradient += layer.input_gradient;
      times[c].weight_gradient += layer.weight_gradient;
      times[c].update += layer.update * b.schedule->options.micro_batches;
    }
  }
  return times;
}

Throughput predict(const Blueprint& b, const NetworkProfile& profile) {
  Blueprint timed = b;
  timed.times = chunk_times(b, profile);
  const std::int32_t M = b.schedule->options.micro_batches;
  std::vector<double> stages(static_cast<std::size_t>(b.schedule->options.stages));
  for (std::size_t c = 0; c < timed.times.size(); ++c) {
    const ChunkTimes& t = timed.times[c];
    stages[static_cast<std::size_t>(b.schedule->stage_of(static_cast<std::int32_t>(c)))] +=
        t.forward + t.input_gradient + t.weight_gradient + t.update / M;
  }
  const Forecast forecast = troupe::forecast(timed);
  const auto slowest = std::max_element(stages.begin(), stages.end());
  return {
      .slowest_stage = static_cast<std::int32_t>(slowest - stages.begin()),
      .slowest_seconds = *slowest,
      .samples_per_second = static_cast<double>(b.experiment.data().batch_size()) / forecast.period,
      .idle = forecast.idle_steady};
}

}  // namespace troupe
