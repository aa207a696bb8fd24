// What each layer of a network costs on the stages' device.
//
// A layer is timed as a chunk of its own, in passes over the whole network as a run makes them: all
// forwards, the loss, all input gradients, all weight gradients, all updates. So a layer finds in
// the caches what it would find there in a run of one stage. As many threads do so at once as the
// run would have at work, so that each has its share of what cores have in common.
#pragma once

#include "apps/topologies/blueprint.hpp"
#include "runtime/schemes/partition/partition.hpp"

#include <vector>

namespace troupe {

struct NetworkProfile {
  std::vector<LayerProfile> layers;  // of a micro-batch, in the order of the network
  std::vector<double> flops;         // of a micro-batch, by layer, as counted
  int passes = 0;                    // each time is the median of so many
  int cores = 0;                     // that all stages' threads share; 0: each has one
  double handover = 0;  // seconds of a stage's thread to take a message from another one's
};

/// Layers of `blueprint`'s network, in micro-batches of its first samples. Seconds are of the
/// calling thread's CPU time where stages run on the CPU, which other programs do not lengthen, and
/// of the wall clock with a synchronisation behind each layer on a GPU. On the CPU threads_at_once()
/// do the same at that time. With
/// pipeline.activations=recompute an input gradient has the second forward in it. Updates are timed
/// without the weights that a policy may predict. Bytes are measured, too: of the bundle that a cut
/// behind the layer would send, of the parameters that it owns, and of the tensors that it is the
/// first to keep.
///
/// Of a network that is cut in width, layers are those of each part in turn, junctions among them: layer i of part t of T is
/// number i T + t.
///
/// Weights stay as they are, and the blueprint's cut in depth does not matter. Takes about a second; seven
/// passes where one takes longer. Error (usage) where stages are on the CPU and on GPUs: seconds of
/// the one say nothing of the other.
Result<NetworkProfile> measure_layers(const Blueprint& blueprint);

/// How many threads compute at once where `blueprint` runs on this machine's CPU: its stages', but no more than there are
/// cores, nor than there is memory for the whole network of each. 1 where stages are on GPUs.
int threads_at_once(const Blueprint& blueprint);

/// The same with pipeline.activations=recompute.
NetworkProfile recomputing(NetworkProfile profile);

}  // namespace troupe
