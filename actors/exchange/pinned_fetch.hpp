// Fetches, slice by slice, the weights that servers have pinned for an evaluation.
#pragma once

#include "messages/servers.hpp"
#include "messages/weights.hpp"
#include "runtime/system/machine.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

class PinnedFetch {
 public:
  PinnedFetch(Ref<ShardRole> self, std::vector<Ref<ServerRole>> servers)
      : self_(self), servers_(std::move(servers)) {}

  void ask(const Pull& pull, Effects& fx);
  /// The pull that `m` completes, and its weights.
  std::optional<std::pair<Pull, Weights>> came(Answer m);

  void archive(auto& a) { a(open_, requests_); }

 private:
  struct Open {
    Pull pull;
    std::map<std::size_t, Slice> slices{};  // that have come
  };

  Ref<ShardRole> self_;
  std::vector<Ref<ServerRole>> servers_;  // by slice
  std::map<std::uint64_t, Open> open_;    // by request
  std::uint64_t requests_ = 0;
};

}  // namespace troupe
