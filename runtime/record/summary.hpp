// What the end of a run tells.
#pragma once

#include "experiment.pb.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace troupe {

struct Summary {
  struct Staleness {  // of one shard, in versions: one entry a micro-batch applied
    double mean = 0;
    std::int64_t max = 0;
    std::map<std::int64_t, std::int64_t> histogram;  // versions -> how often
    double seconds_mean = 0;  // the same in seconds of the run's clock, one entry a mini-batch
  };

  std::string clock;         // "real" or "virtual"
  std::int64_t updates = 0;  // step of the weights reported
  double epochs = 0;
  std::int64_t samples = 0;
  double seconds = 0;  // of the run's clock
  double wall_seconds = 0;
  double samples_per_second = 0;  // of the run's clock, up to the last update
  double train_loss = 0;          // mean over the last epoch, or over the run where it is shorter
  std::optional<double> test_loss;
  std::optional<double> test_accuracy;
  std::map<std::int32_t, Staleness> staleness;   // by shard
  std::map<std::int32_t, double> gap;            // by shard: mean of the sampled gaps
  std::map<std::int32_t, double> busy;           // by stage: share of the run's seconds
  std::map<std::int32_t, std::int64_t> stashes;  // by stage: the most micro-batches kept at once
  std::string weights_sha256;  // over the parameters in layer order, float32 little endian, no
                               // padding; "" where the run failed
  std::string order_sha256;    // "" where no order was recorded
};

/// summary.json's text.
std::string to_json(const Summary& summary, const proto::Experiment& experiment);

}  // namespace troupe
