// What each layer of a network costs on the stages' device, and which cut follows from that.
//
// A layer is timed as a chunk of its own, in passes over the whole network as a run makes them: all
// forwards, the loss, all input gradients, all weight gradients, all updates. So a layer finds in
// the caches what it would find there in a run of one stage.
#pragma once

#include "apps/topologies/blueprint.hpp"
#include "runtime/schemes/partition.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

struct NetworkProfile {
  std::vector<LayerProfile> layers;  // of a micro-batch
  std::vector<double> flops;         // of a micro-batch, by layer, as counted
  int passes = 0;                    // each time is the median of so many
};

/// Layers of `blueprint`'s network, in micro-batches of its first samples. Seconds are of the
/// calling thread's CPU time where stages run on the CPU, which other programs do not lengthen, and
/// of the wall clock with a synchronisation behind each layer on a GPU. With
/// pipeline.activations=recompute an input gradient has the second forward in it. Updates are timed
/// without the weights that a policy may predict. Bytes are measured, too: of the bundle that a cut
/// behind the layer would send, of the parameters that it owns, and of the tensors that it is the
/// first to keep.
///
/// Weights stay as they are, and the blueprint's chunks do not matter. Takes about a second; seven
/// passes where one takes longer. Error (usage) where stages are on the CPU and on GPUs: seconds of
/// the one say nothing of the other.
Result<NetworkProfile> measure_layers(const Blueprint& blueprint);

/// What the partition algorithms are asked. Links cost nothing: stages share a memory. A chunk may
/// need an equal share of its device's memory, with as many copies of weights and as many stashes
/// as the greediest chunk of `blueprint` has.
PartitionProblem partition_problem(const Blueprint& blueprint, const NetworkProfile& profile);

/// The first layer of each chunk but the first, as in pipeline.cut: the slowest chunk is as fast as
/// can be. Error (usage) where no cut fits into memory.
Result<std::vector<std::int64_t>> profiled_cut(const Blueprint& blueprint,
                                               const NetworkProfile& profile);

/// Measures, then cuts.
Result<std::vector<std::int64_t>> measured_cut(const Blueprint& blueprint);

/// `blueprint` as pipeline.partition mixed makes it: its experiment gets pipeline.cut and
/// pipeline.stage_of. It begins with the profiled cut, one chunk a stage; the assignments of 2 K,
/// 3 K and 4 K blocks (partition_mixed) follow, and each that fits into the devices' memory has to
/// promise 2 % more throughput than the best before it, as more chunks mean more staleness. Error
/// (usage) where nothing fits.
Result<Blueprint> mixed_blueprint(const Blueprint& blueprint, const NetworkProfile& profile);

/// Measures, then mixes.
Result<Blueprint> measured_mix(const Blueprint& blueprint);

struct Throughput {
  std::int32_t slowest_stage = 0;
  double slowest_seconds = 0;     // of its work on one micro-batch
  double samples_per_second = 0;  // once the pipe is full, by the schedule
  double idle = 0;                // share of all stages' time, then
};

/// Of `blueprint` as it is cut, were all layers to take the profile's times. At least one layer
/// takes time.
Throughput predict(const Blueprint& blueprint, const NetworkProfile& profile);

}  // namespace troupe
