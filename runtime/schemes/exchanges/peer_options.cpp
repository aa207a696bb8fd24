#include "runtime/schemes/exchanges/peer_options.hpp"

#include "experiment/replicas.pb.h"
#include "kernels/check.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/codecs/codec.hpp"

#include <algorithm>

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
  return static_cast<std::int32_t>(sections::replica_count(experiment));
}

/// Whom the replica at an even place may ask among n, or who may ask one at an odd place: places of the other kind, in
/// rising order. Not of `complete`, where it is all of them.
std::vector<std::int32_t> pairs_of(proto::AdPsgd::Graph graph, std::int64_t place, std::int64_t n) {
  std::vector<std::int32_t> all;
  const auto add = [&](std::int64_t hops) {
    for (const std::int64_t there : {(place + hops) % n, (place - hops + n) % n}) {
      if (hops < n && there % 2 != place % 2) {
        all.push_back(static_cast<std::int32_t>(there));
      }
    }
  };
  add(1);
  for (std::int64_t k = 2; k < n && graph == proto::AdPsgd::exponential; k *= 2) {
    add(k + 1);
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace

double consensus_step(const proto::Experiment& experiment) {
  const double gamma = sections::replicas(experiment).exchange().gossip().gamma();
  constexpr double kCoarse = 0.03;  // what top_k at 1 % bears on an exponential graph of 16
  const proto::Codec& up = sections::replicas(experiment).codec().up();
  return gamma > 0 ? gamma : is_plain(up) || codec_scheme(up).whole ? 1 : kCoarse;
}

std::string changing_graph(const proto::Experiment& experiment) {
  const proto::Gossip::Graph graph = sections::replicas(experiment).exchange().gossip().graph();
  const bool changes = graph == proto::Gossip::one_peer || graph == proto::Gossip::rotating ||
                       graph == proto::Gossip::groups;
  return changes ? "replicas.exchange.gossip.graph: " + proto::Gossip::Graph_Name(graph) : "";
}

GossipOptions gossip_options(const proto::Experiment& experiment) {
  const proto::Gossip& options = sections::replicas(experiment).exchange().gossip();
  const GossipGraph graph(
      kind_of(options.graph()), count_of(experiment), options.group(), sections::seed(experiment));
  return {graph,
          options.period(),
          options.order() == proto::Gossip::simultaneous,
          consensus_step(experiment),
          options.rounds() == 0 ? graph.dimensions() : options.rounds()};
}

SgpOptions sgp_options(const proto::Experiment& experiment) {
  const proto::Sgp& options = sections::replicas(experiment).exchange().sgp();
  return {{kind_of(options.graph()), count_of(experiment), 0, sections::seed(experiment)},
          options.overlap(),
          options.overlap() > 0 && options.sending() == proto::Sgp::held};
}

PairGraph pair_graph(const proto::Experiment& experiment) {
  return {sections::replicas(experiment).exchange().ad_psgd().graph(), count_of(experiment)};
}

std::optional<std::int32_t> PairGraph::partner(
    std::int32_t replica,
    const std::vector<std::int32_t>& gone,
    const std::vector<std::int32_t>& leaving,
    const std::function<std::uint64_t(std::uint64_t)>& draw) const {
  const Members members{replicas, gone};
  const std::int32_t n = members.count();
  const std::int32_t place = members.place_of(replica);
  if (place < 0 || place % 2 == 1 || n < 2) {
    return {};
  }
  std::vector<std::int32_t> without;  // odd places
  for (const std::int32_t r : leaving) {
    if (const std::int32_t there = members.place_of(r); there >= 0 && there % 2 == 1) {
      without.push_back(there);
    }
  }
  if (graph != proto::AdPsgd::complete) {
    std::vector<std::int32_t> all = pairs_of(static_cast<proto::AdPsgd::Graph>(graph), place, n);
    std::erase_if(all, [&](std::int32_t there) {
      return std::binary_search(without.begin(), without.end(), there);
    });
    return all.empty() ? std::nullopt : std::optional(members.at(all[draw(all.size())]));
  }
  const auto count = static_cast<std::uint64_t>(n / 2) - without.size();
  if (count == 0) {
    return {};
  }
  auto there = static_cast<std::int32_t>(2 * draw(count) + 1);
  for (const std::int32_t one : without) {
    there += one <= there ? 2 : 0;
  }
  return members.at(there);
}

std::vector<std::int32_t> PairGraph::askers(std::int32_t replica,
                                            const std::vector<std::int32_t>& gone) const {
  const Members members{replicas, gone};
  const std::int32_t n = members.count();
  const std::int32_t place = members.place_of(replica);
  std::vector<std::int32_t> all;
  if (place % 2 == 1 && graph != proto::AdPsgd::complete) {
    all = pairs_of(static_cast<proto::AdPsgd::Graph>(graph), place, n);
  }
  for (std::int32_t p = 0; place % 2 == 1 && graph == proto::AdPsgd::complete && p < n; p += 2) {
    all.push_back(p);
  }
  for (std::int32_t& one : all) {
    one = members.at(one);
  }
  return all;
}

double staleness_of_all(const proto::Experiment& experiment) {
  return static_cast<double>(sections::replica_count(experiment));
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
