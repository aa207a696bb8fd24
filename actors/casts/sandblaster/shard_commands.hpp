// Commands to all vector shards at once, and the dot products that come back, added up over the
// shards.
#pragma once

#include "messages/sandblaster.hpp"
#include "runtime/system/machine.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

class ShardCommands {
 public:
  explicit ShardCommands(std::vector<Ref<VectorShardRole>> shards) : shards_(std::move(shards)) {}

  const std::vector<Ref<VectorShardRole>>& shards() const { return shards_; }

  /// Of the point: grows each time that the commands `move` it.
  std::int64_t version() const { return version_; }

  void send(const std::vector<VectorCommand>& commands, bool move, Effects& fx) {
    version_ += move;
    ++request_;
    replies_.clear();
    for (const auto& shard : shards_) {
      fx.send(shard, VectorCommands{request_, version_, commands});
    }
  }

  /// The dot products of the newest commands, in their order, where `m` is the last reply to them.
  std::optional<std::vector<double>> came(VectorReply m) {
    if (m.request != request_) {
      return {};
    }
    replies_[m.shard] = std::move(m.dots);
    if (replies_.size() < shards_.size()) {
      return {};
    }
    std::vector<double> dots(replies_.begin()->second.size());
    for (const auto& [shard, of_shard] : std::exchange(replies_, {})) {
      for (std::size_t i = 0; i < dots.size(); ++i) {
        dots[i] += of_shard[i];
      }
    }
    return dots;
  }

  void archive(auto& a) { a(replies_, request_, version_); }

 private:
  std::vector<Ref<VectorShardRole>> shards_;             // by slice
  std::map<std::int32_t, std::vector<double>> replies_;  // by shard
  std::uint64_t request_ = 0;                            // the newest
  std::int64_t version_ = 0;
};

}  // namespace troupe
