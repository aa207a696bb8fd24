// When replicas that gossip tell their neighbours something, and when they average: what gossip has in common
// with and without a codec. Private to actors/exchange.
#pragma once

#include "actors/exchange/member_views.hpp"
#include "actors/exchange/peers.hpp"
#include "runtime/schemes/exchanges/peer_options.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

class GossipRounds : public PeerExchange {
 protected:
  explicit GossipRounds(const ExchangeSeat& seat)
      : PeerExchange(seat), o_(gossip_options(*seat.experiment)), views_(o_.graph, seat.replica) {}

  Hearers minding_the_end_of_all() const override { return Hearers::value_type{}; }

  /// Whether the average comes with the step that follows step() (of which the round is the first one).
  bool averages() const {
    return o_.simultaneous ? step() > 0 && step() % o_.period == 0 : (step() + 1) % o_.period == 0;
  }

  std::int64_t round() const { return first_round(o_.simultaneous ? step() - 1 : step()); }

  /// Of the average that follows step `step`.
  std::int64_t first_round(std::int64_t step) const { return step / o_.period * o_.rounds; }

  /// Begins a round of those that go on from step `step`: says by which graph it goes where that has changed, and
  /// returns who is told.
  std::vector<std::int32_t> hearers(std::int64_t step, std::int64_t round, Effects& fx) {
    const MemberViews::Gone gone = gone_by(step);
    if (gone != views_.of(seat().replica, round)) {
      views_.changed(seat().replica, round, gone);
      tell_members(round, gone, step, fx);
    }
    return views_.graph(round).told_by(seat().replica, round);
  }

  /// Who is heard in a round, whether or not it has come so far: its neighbours, by its own graph and by theirs.
  std::vector<std::int32_t> neighbours(std::int64_t round) const {
    const std::vector<std::int32_t> tellers = views_.tellers(round);
    std::vector<std::int32_t> all = views_.graph(round).heard_by(seat().replica, round);
    std::erase_if(all, [&](std::int32_t r) {
      return !std::binary_search(tellers.begin(), tellers.end(), r);
    });
    return all;
  }

  /// What an average moves the replica by, for each neighbour: gamma W_ij times the distance.
  double share(std::int64_t round) const {
    const auto all = views_.graph(round).heard_by(seat().replica, round).size();
    return o_.gamma / static_cast<double>(all + 1);
  }

  GossipOptions o_;
  MemberViews views_;  // by round
};

/// Gossip by way of replicas.codec.up (coded_gossip.cpp).
std::unique_ptr<PeerExchange> coded_gossip(const ExchangeSeat& seat);

}  // namespace troupe
