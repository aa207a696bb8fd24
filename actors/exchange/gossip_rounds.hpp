// When replicas that gossip tell their neighbours something, and when they average: what gossip has in common
// with and without a codec. Private to actors/exchange.
#pragma once

#include "actors/exchange/peers.hpp"
#include "runtime/schemes/peer_options.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

class GossipRounds : public PeerExchange {
 protected:
  explicit GossipRounds(const ExchangeSeat& seat)
      : PeerExchange(seat), o_(gossip_options(*seat.experiment)) {}

  /// Whether the average comes with the step that follows step() (of which the round is one).
  bool averages() const {
    return o_.simultaneous ? step() > 0 && step() % o_.period == 0 : (step() + 1) % o_.period == 0;
  }

  std::int64_t round() const { return (o_.simultaneous ? step() - 1 : step()) / o_.period; }

  /// Whether a replica tells its weights of this round: it has come so far.
  bool tells(std::int32_t replica) const {
    return makes(replica, o_.simultaneous ? step() - 1 : step());
  }

  /// Who is told in `round`: the neighbours that go on from step `step`, of the weights that they average then.
  std::vector<std::int32_t> hearers(std::int64_t step, std::int64_t round) const {
    std::vector<std::int32_t> all = o_.graph.told_by(seat().replica, round);
    std::erase_if(all, [&](std::int32_t r) { return !makes(r, step); });
    return all;
  }

  /// Who is heard in this round, whether or not it has come so far.
  std::vector<std::int32_t> neighbours() const {
    return o_.graph.heard_by(seat().replica, round());
  }

  /// What an average moves the replica by, for each neighbour: gamma W_ij times the distance.
  double share() const { return o_.gamma / static_cast<double>(neighbours().size() + 1); }

  GossipOptions o_;
};

/// Gossip by way of replicas.codec.up (coded_gossip.cpp).
std::unique_ptr<PeerExchange> coded_gossip(const ExchangeSeat& seat);

}  // namespace troupe
