// What the exchanges without a server read in a resolved experiment (replicas.exchange gossip, sgp, ad_psgd).
#pragma once

#include "messages/proto.hpp"
#include "runtime/schemes/exchanges/gossip_graph.hpp"

#include <cstdint>
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

  /// Whom a replica may ask, in rising order. `members`: those that are left, in rising order, itself among them; every
  /// second of them, from the first on, asks, and the others are asked.
  std::vector<std::int32_t> partners(const std::vector<std::int32_t>& members,
                                     std::int32_t replica) const;
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
