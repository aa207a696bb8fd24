// By what a gradient is multiplied so that its norm is at most optimizer.clip_norm. By this shard's
// own norm, or by the norm over all chunks, which the shard of chunk 0 adds up for all of them:
//
//   shard --MeasureNorms--> optimizer --NormsMeasured--> shard
//   shard --Norms--> shard of chunk 0 --Decide--> every shard
#pragma once

#include "messages/optimizer.hpp"
#include "messages/weights.hpp"
#include "runtime/system/machine.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace troupe {

class Clipping {
 public:
  struct Config {
    Ref<ShardRole> self;
    Ref<OptimizerRole> optimizer;
    double norm = 0;                     // 0: no clipping
    bool globally = false;               // by the norm over all chunks; else by this shard's own
    std::vector<Ref<ShardRole>> shards;  // by chunk
  };

  explicit Clipping(Config config) : c_(std::move(config)) {}

  /// The factor has to be known before the optimizer's job: it is that of all chunks, or the gradient
  /// itself leaves the replica.
  bool beforehand(bool gradient_travels) const {
    return c_.norm > 0 && (c_.globally || gradient_travels);
  }

  /// What the optimizer clips by in its own job; 0: not at all.
  double in_job(bool gradient_travels) const { return beforehand(gradient_travels) ? 0 : c_.norm; }

  void measure(const Stamp& stamp, std::vector<Tensor> gradient, TiedGradients tied, Effects& fx);
  /// The factor, where this shard's norm is all that counts; else it comes as a Decide.
  std::optional<double> measured(const Stamp& stamp, std::vector<double> norms, Effects& fx);
  /// Chunk 0: another shard's sums of squares.
  void add(Norms m, Effects& fx);

  bool globally() const { return c_.globally; }

  void archive(auto& a) { a(norms_); }

 private:
  Config c_;
  // Chunk 0 only: by batch, by chunk
  std::map<std::int64_t, std::map<std::int32_t, std::vector<double>>> norms_;
};

}  // namespace troupe
