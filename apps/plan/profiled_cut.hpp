// The cut of a network that follows from a profile of its layers, and how fast a run of it should be.
#pragma once

#include "apps/plan/profile.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

/// By layer of the network: the layers' own times where nothing is cut in width; else those of the part that it takes
/// longest, with the junctions of the layer.
NetworkProfile of_whole_layers(const Blueprint& blueprint, const NetworkProfile& profile);

/// What the partition algorithms are asked. Links cost nothing there: stages share a memory. A chunk may
/// need an equal share of its device's memory, with as many copies of weights and as many stashes
/// as the greediest chunk of `blueprint` has. Where that is cut in width, profiles are of that width, and stages are seen as
/// the part that has most to do.
PartitionProblem partition_problem(const Blueprint& blueprint, const NetworkProfile& profile);

/// The first layer of each chunk but the first, as in pipeline.cut: the slowest chunk is as fast as
/// can be. Error (usage) where no cut fits into memory.
Result<std::vector<std::int64_t>> profiled_cut(const Blueprint& blueprint,
                                               const NetworkProfile& profile);

/// Which layers and stages the chunks have: pipeline.cut, copies and stage_of.
struct Arrangement {
  std::vector<std::int64_t> cut;
  std::vector<std::int64_t> copies{};
  std::vector<std::int64_t> stage_of{};
};

/// How PipeDream's planner arranges `blueprint`, each the fastest of its kind: the profiled cut, and, of a
/// schedule that never flushes, K - 1, K - 2, ..., `chunks_min` chunks that share all K stages as alternates. Copies that the
/// experiment has stay. What fits into no memory is left out; whether the experiment may have alternates is the caller's
/// to see.
std::vector<Arrangement> profiled_arrangements(const Blueprint& blueprint,
                                               const NetworkProfile& profile,
                                               std::int32_t chunks_min);

/// `blueprint` as pipeline.partition profiled makes it: with the profiled cut, or with the arrangement in alternates that
/// promises most, if that is 2 % more throughput than any of more chunks; its experiment gets pipeline.cut and
/// pipeline.copies. Error (usage) where nothing fits.
Result<Blueprint> profiled_blueprint(const Blueprint& blueprint, const NetworkProfile& profile);

/// `blueprint` as pipeline.partition mixed makes it: its experiment gets pipeline.cut and
/// pipeline.stage_of. It begins with the profiled cut, one chunk a stage; the assignments of 2 K,
/// 3 K and 4 K blocks (partition_mixed) follow, and each that fits into the devices' memory has to
/// promise 2 % more throughput than the best before it, as more chunks mean more staleness. Error
/// (usage) where nothing fits.
Result<Blueprint> mixed_blueprint(const Blueprint& blueprint, const NetworkProfile& profile);

/// Measures, then makes what pipeline.partition, profiled or mixed, says.
Result<Blueprint> measured_blueprint(const Blueprint& blueprint);

/// "[1,2]", as --set takes it.
std::string list_text(const std::vector<std::int64_t>& numbers);

/// Of `blueprint` as it is cut, were all layers to take the profile's times, and each message between stages a handover. Where
/// it is cut in width, the profile is of that width.
std::vector<ChunkTimes> chunk_times(const Blueprint& blueprint, const NetworkProfile& profile);

struct Throughput {
  std::int32_t slowest_stage = 0;
  double slowest_seconds = 0;  // of its work on one micro-batch; of alternates, each has its share
  double samples_per_second = 0;  // once the pipe is full, by the schedule and the cores
  double idle = 0;                // share of all stages' time, then
};

/// Of `blueprint` as it is cut, were all layers to take the profile's times. At least one layer
/// takes time.
Throughput predict(const Blueprint& blueprint, const NetworkProfile& profile);

}  // namespace troupe
