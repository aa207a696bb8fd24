// Which stage works on which layers, from measured times: pure functions over a profile.
//
//   partition_contiguous   PipeDream (Narayanan et al. 2019, section 3.1): consecutive layers, the
//                          slowest stage or link as fast as possible, stages may be replicated
//   partition_mixed        FTPipe (Eliad et al. 2021): blocks of layers wherever they balance best,
//                          so that a stage may hold several chunks
//
// Layers are numbered in the order in which a micro-batch meets them. All seconds and bytes are of
// one micro-batch.
#pragma once

#include "kernels/result.hpp"

#include <cstdint>
#include <limits>
#include <vector>

namespace troupe {

struct LayerProfile {
  double forward = 0;                // seconds
  double input_gradient = 0;         // seconds
  double weight_gradient = 0;        // seconds
  double update = 0;                 // seconds: a micro-batch's share of its mini-batch's update
  double addition = 0;               // seconds: of another alternate's gradient to an update
  std::int64_t output_bytes = 0;     // what the next layer is given, and as much on the way back
  std::int64_t parameter_bytes = 0;  // the weights once
  std::int64_t saved_bytes = 0;      // kept from forward to backward

  double seconds() const { return forward + input_gradient + weight_gradient + update; }
};

/// A tensor that passes layers by: it crosses every cut between `from` and `to`, beside the output.
struct SkipProfile {
  std::int64_t from = 0;  // layer that makes it
  std::int64_t to = 0;    // layer that takes it; after `from`
  std::int64_t bytes = 0;
};

struct PartitionProblem {
  std::vector<LayerProfile> layers;
  std::vector<SkipProfile> skips;
  std::int32_t stages = 1;   // K
  std::int32_t devices = 0;  // at most so many, K or more; 0: K. More than K: for replicas
  std::vector<std::int32_t> replicas{};  // of each stage; empty: as is fastest
  std::int32_t micro_batches = 1;        // M
  double bandwidth = std::numeric_limits<double>::infinity();  // bytes per second of a link
  double latency = 0;                 // seconds until a tensor's first byte
  std::int64_t memory_max = 0;        // bytes of a device; 0: no limit
  std::int32_t parameter_copies = 2;  // on a device: weights and gradient; more with moments
};

struct ContiguousPlan {
  struct Stage {
    std::int64_t first = 0;         // layer
    std::int64_t last = 0;          // one behind the last layer
    std::int32_t replicas = 1;      // m: devices that take turns with micro-batches
    double seconds = 0;             // a micro-batch, replicas and their all-reduce included
    std::int64_t memory_bytes = 0;  // of each device
  };

  std::vector<Stage> stages;      // K
  double bottleneck_seconds = 0;  // of the slowest stage or link: the time between micro-batches
};

/// The cut into K stages of consecutive layers whose bottleneck is fastest, over all cuts and
/// replications with at most `devices` devices:
///
///   stage    max(sum of seconds, 4 (m - 1) |w| / (m bandwidth)) / m   |w|: bytes of its weights
///   link     2 (output bytes / bandwidth + latency)                   there and back
///   memory   parameter_copies |w| + min(M, K - k) * saved bytes       of stage k, from 0
///
/// PipeDream's recursion A(i..j, m) from the last stage on, as what a stage keeps depends on how
/// many follow; time K layers^2 (devices - K + 1)^2. The best K is the caller's to try. Error
/// (usage) where the problem makes no sense, or where no cut fits into memory_max: it names the
/// stage and the bytes that the most frugal cut still lacks.
Result<ContiguousPlan> partition_contiguous(const PartitionProblem& problem);

struct MixedPlan {
  struct Chunk {
    std::int64_t first = 0;  // layer
    std::int64_t last = 0;   // one behind the last layer
    std::int32_t stage = 0;
  };

  std::vector<Chunk> chunks;               // in layer order; neighbours are of different stages
  std::vector<double> seconds;             // by stage: the load
  std::vector<std::int64_t> memory_bytes;  // by stage; of chunk c of C with min(M, C - c) stashes
  double bottleneck_seconds = 0;           // the largest load
  double link_seconds = 0;                 // of all links together, there and back
};

/// Merges the lightest neighbours until `multiplier` * K blocks are left, gives them, longest first,
/// to the stage that has least (LPT: at most 4/3 - 1/(3K) of the best assignment of these blocks,
/// Graham 1969), then moves and exchanges blocks as long as that shortens the largest load or, at
/// the same load, the time on links. Replicas, and latency as a bottleneck, are not considered.
/// Error (usage) where the problem makes no sense, where a skip would carry a tensor backwards, or
/// where the assignment does not fit into memory_max.
Result<MixedPlan> partition_mixed(const PartitionProblem& problem, std::int32_t multiplier);

}  // namespace troupe
