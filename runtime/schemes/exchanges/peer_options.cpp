#include "runtime/schemes/exchanges/peer_options.hpp"

#include "experiment.pb.h"
#include "kernels/check.hpp"
#include "runtime/schemes/codecs/codec.hpp"

#include <algorithm>
#include <set>

namespace troupe {
namespace {

GossipGraph::Kind kind_of(proto::Gossip::Graph graph) {
  switch (graph) {
    case proto::Gossip::ring:
      return GossipGraph::Kind::ring;
    case proto::Gossip::torus:
      return GossipGraph::Kind::torus;
    case proto::Gossip::exponential:
      return GossipGraph::Kind::exponential;
    case proto::Gossip::one_peer:
      return GossipGraph::Kind::one_peer;
    case proto::Gossip::rotating:
      return GossipGraph::Kind::rotating;
    case proto::Gossip::groups:
      return GossipGraph::Kind::groups;
    case proto::Gossip::complete:
      return GossipGraph::Kind::complete;
  }
  throw ContractError("[gossip_options] unknown graph");
}

GossipGraph::Kind kind_of(proto::Sgp::Graph graph) {
  switch (graph) {
    case proto::Sgp::one_peer:
      return GossipGraph::Kind::one_peer;
    case proto::Sgp::exponential:
      return GossipGraph::Kind::exponential;
    case proto::Sgp::random:
      return GossipGraph::Kind::random;
  }
  throw ContractError("[sgp_options] unknown graph");
}

std::int32_t count_of(const proto::Experiment& experiment) {
  return static_cast<std::int32_t>(experiment.replicas().count());
}

/// Whether a replica may ask one that is so many places away, which is an odd number.
bool reaches(proto::AdPsgd::Graph graph, std::int64_t hops) {
  const std::int64_t less = hops - 1;
  switch (graph) {
    case proto::AdPsgd::exponential:
      return (less & (less - 1)) == 0;  // 2^k + 1, and 1
    case proto::AdPsgd::ring:
      return hops == 1;
    case proto::AdPsgd::complete:
      return true;
  }
  throw ContractError("[pair_graph] unknown graph");
}

}  // namespace

double consensus_step(const proto::Experiment& experiment) {
  const double gamma = experiment.replicas().exchange().gossip().gamma();
  constexpr double kCoarse = 0.03;  // what top_k at 1 % bears on an exponential graph of 16
  const proto::Codec& up = experiment.replicas().codec().up();
  return gamma > 0 ? gamma : is_plain(up) || codec_scheme(up).whole ? 1 : kCoarse;
}

std::string changing_graph(const proto::Experiment& experiment) {
  const proto::Gossip::Graph graph = experiment.replicas().exchange().gossip().graph();
  const bool changes = graph == proto::Gossip::one_peer || graph == proto::Gossip::rotating ||
                       graph == proto::Gossip::groups;
  return changes ? "replicas.exchange.gossip.graph: " + proto::Gossip::Graph_Name(graph) : "";
}

GossipOptions gossip_options(const proto::Experiment& experiment) {
  const proto::Gossip& options = experiment.replicas().exchange().gossip();
  const GossipGraph graph(
      kind_of(options.graph()), count_of(experiment), options.group(), experiment.seed());
  return {graph,
          options.period(),
          options.order() == proto::Gossip::simultaneous,
          consensus_step(experiment),
          options.rounds() == 0 ? graph.dimensions() : options.rounds()};
}

SgpOptions sgp_options(const proto::Experiment& experiment) {
  const proto::Sgp& options = experiment.replicas().exchange().sgp();
  return {{kind_of(options.graph()), count_of(experiment), 0, experiment.seed()},
          options.overlap(),
          options.overlap() > 0 && options.sending() == proto::Sgp::held};
}

PairGraph pair_graph(const proto::Experiment& experiment) {
  return {experiment.replicas().exchange().ad_psgd().graph()};
}

std::vector<std::int32_t> PairGraph::partners(const std::vector<std::int32_t>& members,
                                              std::int32_t replica) const {
  const auto n = static_cast<std::int64_t>(members.size());
  const std::int64_t place =
      std::lower_bound(members.begin(), members.end(), replica) - members.begin();
  std::set<std::int32_t> all;
  for (std::int64_t hops = 1; hops < n && place % 2 == 0; hops += 2) {
    for (const std::int64_t there : {(place + hops) % n, (place - hops + n) % n}) {
      if (there % 2 == 1 && reaches(static_cast<proto::AdPsgd::Graph>(graph), hops)) {
        all.insert(members[static_cast<std::size_t>(there)]);
      }
    }
  }
  return {all.begin(), all.end()};
}

double staleness_of_all(const proto::Experiment& experiment) {
  return static_cast<double>(experiment.replicas().count());
}

double copies_of_gossip(const proto::Experiment& experiment) {
  const GossipOptions o = gossip_options(experiment);
  return static_cast<double>(o.graph.messages_max() * static_cast<std::size_t>(o.rounds)) /
         static_cast<double>(o.period);
}

double copies_of_sgp(const proto::Experiment& experiment) {
  const SgpOptions o = sgp_options(experiment);
  return static_cast<double>(o.graph.messages_max()) / static_cast<double>(o.held ? o.overlap : 1);
}

/// Each active replica's question and its answer.
double copies_of_pairs(const proto::Experiment& experiment) {
  return static_cast<double>((count_of(experiment) + 1) / 2) * 2 / count_of(experiment);
}

double copies_to_all(const proto::Experiment& experiment) {
  return count_of(experiment) - 1;
}

}  // namespace troupe
