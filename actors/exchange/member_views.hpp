// Whom replicas that gossip take for the members of their graph. Replicas hear of a death, and of a slower or faster
// one's end, at different steps of their own; until all have, their graphs differ. So each tells all others from which
// round on it goes by another graph (PeerExchange::tell_members), before it tells anything by it: then everybody knows
// who tells whom in a round, or will hear it, and nobody waits for what is not told. Private to actors/exchange.
//
// Invariant: what a replica is known to go by never grows.
#pragma once

#include "runtime/schemes/exchanges/gossip_graph.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace troupe {

class MemberViews {
 public:
  /// Replicas that are no members any more, in rising order.
  using Gone = std::vector<std::int32_t>;

  MemberViews(GossipGraph all, std::int32_t self) : all_(std::move(all)), self_(self) {}

  /// From round `round` on replica `replica` goes by the graph without `gone`.
  void changed(std::int32_t replica, std::int64_t round, Gone gone) {
    views_[replica][round] = std::move(gone);
  }

  /// What a replica goes by in a round, as far as it is known.
  Gone of(std::int32_t replica, std::int64_t round) const {
    const auto found = views_.find(replica);
    if (found == views_.end()) {
      return {};
    }
    const auto after = found->second.upper_bound(round);
    return after == found->second.begin() ? Gone{} : std::prev(after)->second;
  }

  /// The graph that this replica goes by in a round.
  GossipGraph graph(std::int64_t round) const { return all_.without(of(self_, round)); }

  /// Who tells this replica something in a round, each by its own graph: in rising order.
  std::vector<std::int32_t> tellers(std::int64_t round) const {
    if (views_.empty()) {
      return all_.heard_by(self_, round);
    }
    std::set<Gone> different{{}};
    for (const auto& [replica, views] : views_) {
      different.insert(of(replica, round));
    }
    std::vector<std::int32_t> all;
    for (const Gone& gone : different) {
      for (const std::int32_t r : all_.without(gone).heard_by(self_, round)) {
        if (of(r, round) == gone) {
          all.push_back(r);
        }
      }
    }
    std::sort(all.begin(), all.end());
    return all;
  }

  /// Earlier rounds are not asked for any more.
  void forget_before(std::int64_t round) {
    for (auto& [replica, views] : views_) {
      const auto last = views.upper_bound(round);
      views.erase(views.begin(), last == views.begin() ? last : std::prev(last));
    }
  }

  template <class Archive>
  void archive(Archive& a) {
    a(views_);
  }

 private:
  GossipGraph all_;
  std::int32_t self_;
  std::map<std::int32_t, std::map<std::int64_t, Gone>>
      views_;  // by replica, and from which round on; none: all
};

}  // namespace troupe
