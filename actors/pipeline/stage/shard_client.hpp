// A stage's side of the exchange with parameter shards: asks for weights and pushes gradients. A tied
// parameter's weights are asked of the shard of the chunk that owns it, and its gradient goes there.
#pragma once

#include "actors/pipeline/stage/gradient_sums.hpp"
#include "messages/weights.hpp"
#include "runtime/model/chunk.hpp"
#include "runtime/schemes/schedules/schedule.hpp"
#include "runtime/system/machine.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

/// The weights of a chunk come in parts: part 0 is its own, part i + 1 its borrowed slice i.
struct WeightsPart {
  std::int32_t chunk = 0;
  std::size_t part = 0;

  auto operator<=>(const WeightsPart&) const = default;
};

class ShardClient {
 public:
  struct Config {
    Ref<StageRole> self;
    std::int32_t replica = 0;
    std::vector<std::shared_ptr<const Chunk>> chunks;  // by chunk
    std::vector<Ref<ShardRole>> shard_of;              // by chunk
  };

  explicit ShardClient(Config config) : c_(std::move(config)) {}

  /// Asks for a part of the weights. Returns the request, which the PullReply names.
  std::uint64_t pull(const WeightsPart& part, const View& view, Effects& fx);

  /// The same for an evaluation at `step`. `own`: as MarkDue::own.
  std::uint64_t pull_pinned(const WeightsPart& part, std::int64_t step, bool own, Effects& fx);

  /// Pushes the gradient of the mini-batch of `update`. Of a chunk with alternates, each round's last one alone makes an update;
  /// the others' gradients go ahead as shares of it. A mini-batch without an update is a step all the same.
  void push(const Action& update, BatchGradient batch, const Schedule& schedule, Effects& fx);

  /// The chunk that owns the part.
  std::int32_t owner(const WeightsPart& part) const;

  const std::vector<BorrowedSlice>& borrowed(std::int32_t chunk) const {
    return c_.chunks[static_cast<std::size_t>(chunk)]->borrowed();
  }

  void archive(auto& a) { a(requests_, pushes_); }

 private:
  std::uint64_t ask(const WeightsPart& part, Pull pull, Effects& fx);

  Ref<ShardRole> shard_of(std::int32_t chunk) const {
    return c_.shard_of.at(static_cast<std::size_t>(chunk));
  }

  Config c_;
  std::uint64_t requests_ = 0;
  std::uint64_t pushes_ = 0;
};

}  // namespace troupe
