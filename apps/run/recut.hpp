// A run that goes on on another topology: another cut, other replicas, another scheme. The one of the checkpoint is
// drained, which means that all mini-batches that were admitted are finished on the topology that it has, in one thread;
// weights, buffers and the optimizer's state are of one step then. The new run begins with these, at that step and
// behind all data that was admitted.
#pragma once

#include "experiment.pb.h"
#include "runtime/checkpoint/store.hpp"

#include <string>
#include <vector>

namespace troupe {

struct Recut {
  proto::Experiment experiment;  // resolved; with `resumed`
  Checkpoint checkpoint;         // that a run of it goes on from, exactly
  std::string sentence;          // what was done, for people
};

/// `found`, gone on with on what `assignments`, as --set takes them, make of its experiment. Error (usage) where they
/// change what the run is of, or nothing is left to do; (data) where the checkpoint's state is not of its
/// experiment; (lost, diverged) where its run does not come to an end.
Result<Recut> recut(const FoundCheckpoint& found, const std::vector<std::string>& assignments);

}  // namespace troupe
