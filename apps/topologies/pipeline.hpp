// Experiment -> cast: one replica of K stages, each with its shard and optimizer.
#pragma once

#include "experiment.pb.h"
#include "runtime/checkpoint/weights.hpp"
#include "runtime/data/dataset.hpp"
#include "runtime/model/chunk.hpp"
#include "runtime/schemes/policy.hpp"
#include "runtime/schemes/schedule.hpp"
#include "runtime/system/machine.hpp"
#include "runtime/system/time_model.hpp"

#include <memory>
#include <vector>

namespace troupe {

/// Everything that follows from a resolved experiment before anything runs: what `plan` prints and
/// `build_cast` uses.
struct Blueprint {
  proto::Experiment experiment;  // resolved
  std::shared_ptr<const Dataset> data;
  Network network;
  std::vector<std::int64_t> cut;  // first layer of each chunk
  std::vector<std::shared_ptr<const Chunk>> chunks;
  std::vector<ParameterValues> start;  // as weight_specs; empty: initialised by seed
  std::shared_ptr<const Schedule> schedule;
  ViewPolicy view{ViewKind::latest, 0};
  std::vector<ViewPlan> plans;    // by chunk
  std::vector<Device> devices;    // by stage
  std::vector<ChunkTimes> times;  // modelled means of one micro-batch, by chunk
  std::int64_t batches_per_epoch = 0;
  std::int64_t batches = 0;         // N; 0 where only time or accuracy ends the run
  std::int64_t evaluate_every = 0;  // steps; 0: only at the end (or not at all)
};

/// Cuts the network into the schedule's chunks: fills cut, chunks, plans and times. `cut`: as in
/// pipeline.cut; empty: by FLOPs. Error (usage) where it does not fit.
Result<void> cut_blueprint(Blueprint& blueprint, const std::vector<std::int64_t>& cut);

/// Checks everything that can be checked before a run. Error (usage or data) with key, value and
/// what would be right. Where pipeline.partition is `profiled` and no cut is given, it measures the
/// layers and sets pipeline.cut.
Result<Blueprint> make_blueprint(const proto::Experiment& resolved);

/// What chunk `index` starts with, on the stream's device: from the file of start_from, or by seed.
std::vector<Tensor> starting_slices(Stream& stream, const Blueprint& blueprint, std::size_t index);
std::vector<Tensor> starting_buffers(Stream& stream, const Blueprint& blueprint, std::size_t index);

/// The machines. Initial weights are made here.
Cast build_cast(const Blueprint& blueprint);

}  // namespace troupe
