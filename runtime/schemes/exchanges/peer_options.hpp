// What the exchanges without a server read in a resolved experiment (replicas.exchange gossip, sgp, ad_psgd).
#pragma once

#include "messages/proto.hpp"
#include "runtime/schemes/exchanges/gossip_graph.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

struct GossipOptions {
  GossipGraph graph;
  std::int64_t period = 1;   // mini-batches between two averages
  bool simultaneous = true;  // a step is added to the average of what it started from
  double gamma = 1;          // consensus step size: how far a replica goes towards the average
  std::int64_t rounds = 1;   // of the graph that one average goes through, one after the other
};

/// gossip.gamma, or what it is by default.
double consensus_step(const proto::Experiment& experiment);

/// ExchangeScheme::changing_neighbours of gossip.
std::string changing_graph(const proto::Experiment& experiment);

GossipOptions gossip_options(const proto::Experiment& experiment);

struct SgpOptions {
  GossipGraph graph;
  std::int64_t overlap = 0;  // mini-batches that a share may be under way
  bool held = true;          // with overlap: a replica sends shares once in so many mini-batches
};

SgpOptions sgp_options(const proto::Experiment& experiment);

/// Who may ask whom under ad_psgd.
struct PairGraph {
  int graph = 0;  // proto::AdPsgd::Graph
  std::int32_t replicas = 0;

  /// Whom a replica asks: the one of its partners, in rising order, that `draw` names, which is given how many there are.
  /// Nobody: it has none. Without the replicas `gone`, in rising order, every second that is left asks, from the first on,
  /// and the others are asked; but not `leaving`, in rising order, whom others may be waiting for.
  std::optional<std::int32_t> partner(
      std::int32_t replica,
      const std::vector<std::int32_t>& gone,
      const std::vector<std::int32_t>& leaving,
      const std::function<std::uint64_t(std::uint64_t)>& draw) const;

  /// Who may ask a replica, in rising order.
  std::vector<std::int32_t> askers(std::int32_t replica,
                                   const std::vector<std::int32_t>& gone) const;
};

PairGraph pair_graph(const proto::Experiment& experiment);

/// Of exchanges whose replicas all move by every gradient: R.
double staleness_of_all(const proto::Experiment& experiment);

/// ExchangeScheme::copies_sent of gossip, of sgp, of pairs, and of all to all.
double copies_of_gossip(const proto::Experiment& experiment);
double copies_of_sgp(const proto::Experiment& experiment);
double copies_of_pairs(const proto::Experiment& experiment);
double copies_to_all(const proto::Experiment& experiment);

}  // namespace troupe
