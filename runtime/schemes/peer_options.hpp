// What the exchanges without a server read in a resolved experiment (replicas.exchange gossip, sgp, ad_psgd).
#pragma once

#include "messages/proto.hpp"
#include "runtime/schemes/gossip_graph.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

struct GossipOptions {
  GossipGraph graph;
  std::int64_t period = 1;   // mini-batches between two averages
  bool simultaneous = true;  // a step is added to the average of what it started from
  double gamma = 1;          // consensus step size: how far a replica goes towards the average
};

/// gossip.gamma, or what it is by default.
double consensus_step(const proto::Experiment& experiment);

GossipOptions gossip_options(const proto::Experiment& experiment);

struct SgpOptions {
  GossipGraph graph;
  std::int64_t overlap = 0;  // mini-batches that a share may be under way
};

SgpOptions sgp_options(const proto::Experiment& experiment);

/// The passive replicas, with odd numbers, that a replica may ask, in rising order; none for a passive one.
std::vector<std::int32_t> ad_psgd_partners(const proto::Experiment& experiment,
                                           std::int32_t replica);

/// Of exchanges whose replicas all move by every gradient: R.
double staleness_of_all(const proto::Experiment& experiment);

/// ExchangeScheme::copies_sent of gossip, of sgp, of pairs, and of all to all.
double copies_of_gossip(const proto::Experiment& experiment);
double copies_of_sgp(const proto::Experiment& experiment);
double copies_of_pairs(const proto::Experiment& experiment);
double copies_to_all(const proto::Experiment& experiment);

}  // namespace troupe
