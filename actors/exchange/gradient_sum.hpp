// A replica's shard's part in adding up a mini-batch's gradient over all replicas, which the shards
// of one chunk do among themselves (synchronous.reduction = ring, tree). Who sends what and when is
// AllReduce's; the additions are jobs of the optimizer.
//
//   shard --GradientPart--> the same chunk's shard of another replica
//   shard --AddGradients, JoinSegments--> optimizer --Summed--> shard
//
// Invariants: one sum is under way at a time; what came for it or for a later one waits until its
// turn; every replica ends with the same bits; what has been sent is not written to again.
#pragma once

#include "runtime/schemes/all_reduce.hpp"
#include "runtime/system/machine.hpp"

#include <compare>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

class GradientSum {
 public:
  struct Config {
    Ref<ShardRole> self;
    Ref<OptimizerRole> optimizer;
    ReductionKind how = ReductionKind::ring;
    std::int32_t replica = 0;
    std::vector<Ref<ShardRole>> peers;  // by replica, itself among them: two or more
  };

  explicit GradientSum(Config config);

  /// Adds this replica's gradient of mini-batch stamp.batch, by slice, and the shares of tied
  /// parameters.
  void begin(const Stamp& stamp, std::vector<Tensor> gradient, TiedGradients tied, Effects& fx);
  void came(GradientPart part, Effects& fx);
  /// What the optimizer made. True: m.gradient is the mean over all replicas.
  bool did(Summed& m, Effects& fx);

  bool active() const { return active_; }

  std::string waits_for() const;

  void archive(auto& a) { a(stamp_, active_, adding_, joining_, next_, segments_, parts_); }

 private:
  struct Key {  // of a GradientPart that waits
    std::int64_t batch = 0;
    std::int32_t from = 0;  // replica
    std::int32_t round = 0;

    auto operator<=>(const Key&) const = default;

    static constexpr int kFields = 3;
  };

  void cut(const std::vector<Tensor>& gradient, Effects& fx);
  void advance(Effects& fx);
  void add(std::vector<Tensor> gradient,
           TiedGradients tied,
           std::vector<Tensor> theirs,
           Effects& fx);
  void join(Effects& fx);

  Config c_;
  AllReduce plan_;
  Stamp stamp_;
  bool active_ = false;
  bool adding_ = false;                        // the optimizer is at work for it
  bool joining_ = false;                       // ... on the last job
  std::size_t next_ = 0;                       // move
  std::vector<std::vector<Tensor>> segments_;  // by segment and slice
  std::map<Key, GradientPart> parts_;          // that have come
};

}  // namespace troupe
