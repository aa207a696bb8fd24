// A replica's shard's part in adding up a mini-batch's gradient over all replicas, which the shards
// of one chunk do among themselves (synchronous.reduction = ring, tree). Who sends what and when is
// AllReduce's; the additions are jobs of the shard's own.
//
//   shard --GradientPart--> the same chunk's shard of another replica
//
// With a codec that recodes (runtime/schemes/codecs/summed_link.hpp) parts are its messages: what comes is decoded, a
// replica's own is added, and the sum is encoded anew. Each replica encodes each segment once and keeps what
// that leaves out; the complete sum goes round as the message that it is, so that all decode the same.
//
// Invariants: one sum is under way at a time; what came for it or for a later one waits until its
// turn; every replica ends with the same bits; what has been sent is not written to again.
#pragma once

#include "messages/archive_sized.hpp"
#include "messages/optimizer.hpp"
#include "messages/peers.hpp"
#include "runtime/schemes/codecs/codec.hpp"
#include "runtime/schemes/exchanges/all_reduce.hpp"
#include "runtime/system/machine.hpp"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

class GradientSum {
 public:
  struct Config {
    ReductionKind how = ReductionKind::ring;
    std::int32_t replica = 0;
    std::vector<Ref<ShardRole>> peers;  // by replica, itself among them: two or more
    std::vector<CodedLink> recodes{};   // by slice; empty: parts are numbers as they are
  };

  explicit GradientSum(Config config);

  /// Adds this replica's gradient of mini-batch stamp.batch, by slice, and the shares of tied
  /// parameters. `round`: tells several sums for one mini-batch apart, from 0.
  void begin(const Stamp& stamp,
             std::vector<Tensor> gradient,
             TiedGradients tied,
             Effects& fx,
             std::int32_t round = 0);
  void came(GradientPart part, Effects& fx);
  /// What a job of its own has made. True: m.tensors is the mean over all replicas.
  bool job_done(Computed& m, Effects& fx);

  bool active() const { return does_ != Does::nothing; }

  std::string waits_for() const;

  void archive(auto& a) {
    a(stamp_, does_, next_, segments_, parts_);
    a(first_round_, sizes_, states_);
    // A job that makes the segments, or the sum of them, has them.
    const bool whole =
        std::ssize(segments_) == plan_.segments || (working() && segments_.empty()) || !active();
    expect_archived(next_ <= plan_.moves.size() && whole,
                    "the state has a sum of gradients of another plan");
  }

 private:
  enum class Does : std::uint8_t {
    nothing,
    waits,  // for a part of another replica
    works,  // a job does
    joins,  // the last job does
  };

  struct Key {  // of a GradientPart that waits
    std::int64_t batch = 0;
    std::int32_t round = 0;  // of the mini-batch's
    std::int32_t from = 0;   // replica

    auto operator<=>(const Key&) const = default;
  };

  bool working() const { return does_ == Does::works || does_ == Does::joins; }

  void cut(const std::vector<Tensor>& gradient, Effects& fx);
  void advance(Effects& fx);
  void add(std::vector<Tensor> gradient,
           TiedGradients tied,
           std::vector<Tensor> theirs,
           Effects& fx);
  void join(Effects& fx);
  bool coded(const std::vector<Tensor>& segment) const;
  void encode(std::int32_t segment, Effects& fx);
  void expect_of(const Move& move, bool sound, const std::string& why) const;
  void check_part(const Move& move, const std::vector<Tensor>& messages) const;

  Config c_;
  AllReduce plan_;
  Stamp stamp_;
  Does does_ = Does::nothing;
  std::size_t next_ = 0;                          // move
  std::vector<std::vector<Tensor>> segments_;     // by segment and slice
  std::map<Key, GradientPart> parts_;             // that have come
  std::int32_t first_round_ = 0;                  // of this sum's rounds, among the mini-batch's
  std::vector<std::vector<std::int64_t>> sizes_;  // numbers by segment and slice
  std::vector<std::vector<LinkState>> states_;    // of a recoded sum: what its links keep
};

}  // namespace troupe
