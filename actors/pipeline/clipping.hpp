// By what a gradient is multiplied so that its norm is at most optimizer.clip_norm. By this shard's
// own norm, or by the norm of several: over all chunks where the schedule flushes, else of the parts of one (pipeline.width).
// The first of them adds it up:
//
//   shard --Norms--> first shard --Decide--> every shard
#pragma once

#include "actors/exchange/fan_in.hpp"
#include "messages/optimizer.hpp"
#include "messages/weights.hpp"
#include "runtime/schemes/optimizers/optimizer_step.hpp"
#include "runtime/system/machine.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace troupe {

class Clipping {
 public:
  /// When the factor is known.
  enum class When : std::uint8_t {
    in_job,    // in the optimizer's: by this shard's own norm
    before,    // likewise, but the gradient itself leaves the replica
    together,  // by the norm of all `shards`, decided at the first of them
  };

  struct Config {
    Ref<ShardRole> self;
    SliceLayout layout;
    double norm = 0;  // 0: no clipping
    When when = When::in_job;
    std::vector<Ref<ShardRole>> shards;  // of `together`, in layer order
  };

  explicit Clipping(Config config) : c_(std::move(config)), norms_(c_.shards.size()) {}

  /// The factor has to be known before the optimizer's job: it is that of several shards, or the gradient
  /// itself leaves the replica.
  bool beforehand() const { return c_.norm > 0 && c_.when != When::in_job; }

  /// What the optimizer clips by in its own job; 0: not at all.
  double in_job() const { return beforehand() ? 0 : c_.norm; }

  /// The name of measure()'s job.
  static constexpr const char* kNorms = ":norms";

  /// Has a job add the shares of tied parameters and measure. It makes the gradient, by slice, and its sums of squares,
  /// by tensor in layer order.
  void measure(const Stamp& stamp,
               std::vector<Tensor> gradient,
               TiedGradients tied,
               Effects& fx) const;
  /// The factor, where this shard's norm is all that counts; else it comes as a Decide.
  std::optional<double> measured(const Stamp& stamp, std::vector<double> norms, Effects& fx);
  /// The first one: another shard's sums of squares.
  void add(Norms m, Effects& fx);

  bool globally() const { return c_.when == When::together; }

  void archive(auto& a) { a(norms_); }

 private:
  Config c_;
  FanIn<std::int32_t, std::vector<double>> norms_;  // by chunk; the first shard's only
};

}  // namespace troupe
