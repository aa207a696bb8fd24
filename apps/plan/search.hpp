// Which grid of replicas, stages, parts of them, micro-batches and schedules trains fastest, by the profile of the layers.
#pragma once

#include "apps/topologies/blueprint.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

struct SearchOptions {
  std::int64_t workers = 1;  // stages, or their parts, of all replicas together, at most
  double memory = 0;         // bytes that a stage may take; 0: no limit
};

/// One way to run an experiment.
struct Grid {
  std::vector<std::string> sets;  // as of --set: what makes it of the experiment
  double seconds = 0;             // an update, once the pipe is full
  double memory = 0;              // bytes of the stage that takes most
  double bytes = 0;               // that stages and replicas send one another for an update
  std::int64_t staleness = 0;     // updates by which a forward is early, at most
};

/// All grids that `blueprint`'s experiment can be run as, the fastest first; of those within 2 % of each
/// other, the one with less memory, then less bytes. Each has the experiment's samples in an update. Tried are
///
///   replicas   1, 2, 4, ... with synchronous, where the experiment has one
///   width      1, 2, 4, ... parts of each stage
///   stages     1, 2, ... with the cut that the profile makes; where mini-batches may be late and weights are
///              stashed, fewer chunks than stages, too, with pipeline.copies
///   micro-batches  1, 2, 4, ..., 64
///   schedules  all that are built in; those that never flush only where the experiment's own does not
///   activations    kept, or made a second time
///
/// Layers are measured for each size of a micro-batch, width and number of threads, and messages cost a handover. Error (usage) as measure_layers'.
Result<std::vector<Grid>> search_grids(const Blueprint& blueprint, const SearchOptions& options);

/// The ten best, and the command line that runs each: `command` with its --set.
std::string grids_text(const std::vector<Grid>& grids, const std::string& command);

/// All of them, with the names of the columns in a first line; settings are separated by spaces.
std::string grids_csv(const std::vector<Grid>& grids);

}  // namespace troupe
