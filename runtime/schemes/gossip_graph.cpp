#include "runtime/schemes/gossip_graph.hpp"

#include "kernels/check.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace troupe {
namespace {

/// Hops 1, 2, 4, ... below n.
int hops_below(std::int32_t n) {
  return static_cast<int>(std::bit_width(static_cast<std::uint32_t>(n - 1)));
}

/// In rising order, each once, without `self`.
std::vector<std::int32_t> sorted_without(std::int32_t self, std::vector<std::int32_t> all) {
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  std::erase(all, self);
  return all;
}

}  // namespace

GossipGraph::GossipGraph(Kind kind, std::int32_t replicas, std::int64_t group, std::uint64_t seed)
    : kind_(kind), replicas_(replicas), group_(group), random_(seed, Purpose::peers) {
  TROUPE_CHECK(replicas >= 2, "[GossipGraph] of ", replicas, " replicas");
  TROUPE_CHECK(kind != Kind::groups || group >= 2, "[GossipGraph] groups of ", group);
}

std::vector<std::int32_t> GossipGraph::told_by(std::int32_t replica, std::int64_t round) const {
  return kind_ == Kind::random ? std::vector{drawn_by(replica, round)}
                               : neighbours(replica, round, +1);
}

std::vector<std::int32_t> GossipGraph::heard_by(std::int32_t replica, std::int64_t round) const {
  if (kind_ != Kind::random) {
    return neighbours(replica, round, -1);
  }
  std::vector<std::int32_t> heard;
  for (std::int32_t r = 0; r < replicas_; ++r) {
    if (r != replica && drawn_by(r, round) == replica) {
      heard.push_back(r);
    }
  }
  return heard;
}

std::size_t GossipGraph::messages_max() const {
  std::size_t most = 0;
  for (std::int32_t r = 0; r < replicas_; ++r) {
    most = std::max(most, told_by(r, 0).size());
  }
  return most;
}

/// `way`: +1 whom the replica tells, -1 whom it hears.
std::vector<std::int32_t> GossipGraph::neighbours(std::int32_t replica,
                                                  std::int64_t round,
                                                  int way) const {
  const auto at = [&](std::int64_t hops) {
    const std::int64_t there = (replica + hops) % replicas_;
    return static_cast<std::int32_t>(there < 0 ? there + replicas_ : there);
  };
  std::vector<std::int32_t> all;
  switch (kind_) {
    case Kind::ring:
      all = {at(-1), at(+1)};
      break;
    case Kind::torus:
      all = on_torus(replica);
      break;
    case Kind::exponential:
      for (int k = 0; k < hops_below(replicas_); ++k) {
        all.push_back(at(way * (std::int64_t{1} << k)));
      }
      break;
    case Kind::one_peer:
    case Kind::rotating:
      all = {one_hop(replica, round, way)};
      break;
    case Kind::groups:
      all = in_group(replica, round);
      break;
    case Kind::complete:
      all.resize(static_cast<std::size_t>(replicas_));
      std::iota(all.begin(), all.end(), 0);
      break;
    case Kind::random:
      break;  // told_by(), heard_by()
  }
  return sorted_without(replica, std::move(all));
}

std::vector<std::int32_t> GossipGraph::on_torus(std::int32_t replica) const {
  std::int32_t rows = 1;
  for (std::int32_t n = 1; n * n <= replicas_; ++n) {
    rows = replicas_ % n == 0 ? n : rows;
  }
  const std::int32_t columns = replicas_ / rows;
  const std::int32_t row = replica / columns;
  const std::int32_t column = replica % columns;
  return {row * columns + (column + 1) % columns,
          row * columns + (column + columns - 1) % columns,
          (row + 1) % rows * columns + column,
          (row + rows - 1) % rows * columns + column};
}

/// Those whose numbers, in base `group`, have the same digits but for one, which is another one in each round.
std::vector<std::int32_t> GossipGraph::in_group(std::int32_t replica, std::int64_t round) const {
  std::int64_t dimensions = 1;
  for (std::int64_t size = group_; size < replicas_; size *= group_) {
    ++dimensions;
  }
  std::int64_t place = 1;
  for (std::int64_t d = round % dimensions; d > 0; --d) {
    place *= group_;
  }
  const std::int64_t first = replica - replica / place % group_ * place;
  std::vector<std::int32_t> all;
  for (std::int64_t digit = 0; digit < group_ && first + digit * place < replicas_; ++digit) {
    all.push_back(static_cast<std::int32_t>(first + digit * place));
  }
  return all;
}

/// Of `rotating` the places are dealt anew after each turn through the hops; in the first the replica's is
/// its number.
std::int32_t GossipGraph::one_hop(std::int32_t replica, std::int64_t round, int way) const {
  const std::int64_t turns = hops_below(replicas_);
  const std::int64_t hop = std::int64_t{1} << (round % turns);
  std::vector<std::int32_t> places(static_cast<std::size_t>(replicas_));
  std::iota(places.begin(), places.end(), 0);
  if (kind_ == Kind::rotating && round >= turns) {
    const auto deal =
        static_cast<std::uint64_t>(round / turns) * static_cast<std::uint64_t>(replicas_);
    for (std::size_t i = places.size() - 1; i > 0; --i) {
      std::swap(places[i], places[random_.below(deal + i, i + 1)]);
    }
  }
  const auto here = std::find(places.begin(), places.end(), replica) - places.begin();
  const std::int64_t there = (here + way * hop + replicas_) % replicas_;
  return places[static_cast<std::size_t>(there)];
}

std::int32_t GossipGraph::drawn_by(std::int32_t replica, std::int64_t round) const {
  const auto others = static_cast<std::uint64_t>(replicas_ - 1);
  const auto draw = static_cast<std::uint64_t>(round) * static_cast<std::uint64_t>(replicas_) +
                    static_cast<std::uint64_t>(replica);
  return static_cast<std::int32_t>(
      (static_cast<std::uint64_t>(replica) + 1 + random_.below(draw, others)) % (others + 1));
}

}  // namespace troupe
