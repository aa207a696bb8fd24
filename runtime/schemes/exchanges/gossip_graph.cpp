#include "runtime/schemes/exchanges/gossip_graph.hpp"

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
    : kind_(kind),
      all_(replicas),
      replicas_(replicas),
      group_(group),
      random_(seed, Purpose::peers) {
  TROUPE_CHECK(replicas >= 2, "[GossipGraph] of ", replicas, " replicas");
  TROUPE_CHECK(kind != Kind::groups || group >= 2, "[GossipGraph] groups of ", group);
}

GossipGraph GossipGraph::without(const std::vector<std::int32_t>& gone) const {
  GossipGraph left = *this;
  for (const std::int32_t r : gone) {
    if (r >= 0 && r < all_) {
      left.gone_.push_back(r);
    }
  }
  std::sort(left.gone_.begin(), left.gone_.end());
  left.gone_.erase(std::unique(left.gone_.begin(), left.gone_.end()), left.gone_.end());
  left.replicas_ = all_ - static_cast<std::int32_t>(left.gone_.size());
  TROUPE_CHECK(left.replicas_ > 0, "[GossipGraph] no replica is left");
  return left;
}

std::vector<std::int32_t> GossipGraph::told_by(std::int32_t replica, std::int64_t round) const {
  const std::int32_t place = place_of(replica);
  if (place < 0 || replicas_ == 1) {
    return {};
  }
  return members_at(kind_ == Kind::random ? std::vector{drawn_by(place, round)}
                                          : neighbours(place, round, +1));
}

std::vector<std::int32_t> GossipGraph::heard_by(std::int32_t replica, std::int64_t round) const {
  const std::int32_t place = place_of(replica);
  if (place < 0 || replicas_ == 1) {
    return {};
  }
  return members_at(kind_ == Kind::random ? heard_where_drawn(place, round)
                                          : neighbours(place, round, -1));
}

std::vector<std::int32_t> GossipGraph::heard_where_drawn(std::int32_t place,
                                                         std::int64_t round) const {
  std::vector<std::int32_t> heard;
  for (std::int32_t p = 0; p < replicas_; ++p) {
    if (p != place && drawn_by(p, round) == place) {
      heard.push_back(p);
    }
  }
  return heard;
}

/// -1: it is no member.
std::int32_t GossipGraph::place_of(std::int32_t replica) const {
  const auto before = std::lower_bound(gone_.begin(), gone_.end(), replica);
  const bool gone = before != gone_.end() && *before == replica;
  return gone || replica < 0 || replica >= all_
             ? -1
             : replica - static_cast<std::int32_t>(before - gone_.begin());
}

std::int32_t GossipGraph::member_at(std::int32_t place) const {
  std::int32_t member = place;
  for (const std::int32_t gone : gone_) {
    if (gone > member) {
      break;
    }
    ++member;
  }
  return member;
}

std::vector<std::int32_t> GossipGraph::members_at(std::vector<std::int32_t> places) const {
  for (std::int32_t& place : places) {
    place = member_at(place);
  }
  return places;
}

std::int64_t GossipGraph::dimensions() const {
  std::int64_t dimensions = 1;
  for (std::int64_t size = group_; kind_ == Kind::groups && size < replicas_; size *= group_) {
    ++dimensions;
  }
  return dimensions;
}

std::size_t GossipGraph::messages_max() const {
  std::size_t most = 0;
  for (std::int32_t r = 0; r < replicas_; ++r) {
    most = std::max(most, told_by(member_at(r), 0).size());
  }
  return most;
}

/// `way`: +1 whom the member at this place tells, -1 whom it hears. Places, as in all that follows.
std::vector<std::int32_t> GossipGraph::neighbours(std::int32_t place,
                                                  std::int64_t round,
                                                  int way) const {
  const auto at = [&](std::int64_t hops) {
    const std::int64_t there = (place + hops) % replicas_;
    return static_cast<std::int32_t>(there < 0 ? there + replicas_ : there);
  };
  std::vector<std::int32_t> all;
  switch (kind_) {
    case Kind::ring:
      all = {at(-1), at(+1)};
      break;
    case Kind::torus:
      all = on_torus(place);
      break;
    case Kind::exponential:
      for (int k = 0; k < hops_below(replicas_); ++k) {
        all.push_back(at(way * (std::int64_t{1} << k)));
      }
      break;
    case Kind::one_peer:
    case Kind::rotating:
      all = {one_hop(place, round, way)};
      break;
    case Kind::groups:
      all = in_group(place, round);
      break;
    case Kind::complete:
      all.resize(static_cast<std::size_t>(replicas_));
      std::iota(all.begin(), all.end(), 0);
      break;
    case Kind::random:
      break;  // told_by(), heard_by()
  }
  return sorted_without(place, std::move(all));
}

std::vector<std::int32_t> GossipGraph::on_torus(std::int32_t place) const {
  std::int32_t rows = 1;
  for (std::int32_t n = 1; n * n <= replicas_; ++n) {
    rows = replicas_ % n == 0 ? n : rows;
  }
  const std::int32_t columns = replicas_ / rows;
  const std::int32_t row = place / columns;
  const std::int32_t column = place % columns;
  return {row * columns + (column + 1) % columns,
          row * columns + (column + columns - 1) % columns,
          (row + 1) % rows * columns + column,
          (row + rows - 1) % rows * columns + column};
}

/// Those whose numbers, in base `group`, have the same digits but for one, which is another one in each round.
std::vector<std::int32_t> GossipGraph::in_group(std::int32_t place, std::int64_t round) const {
  std::int64_t stride = 1;
  for (std::int64_t d = round % dimensions(); d > 0; --d) {
    stride *= group_;
  }
  const std::int64_t first = place - place / stride % group_ * stride;
  std::vector<std::int32_t> all;
  for (std::int64_t digit = 0; digit < group_ && first + digit * stride < replicas_; ++digit) {
    all.push_back(static_cast<std::int32_t>(first + digit * stride));
  }
  return all;
}

/// Of `rotating` the places are dealt anew after each turn through the hops; in the first it keeps its own.
std::int32_t GossipGraph::one_hop(std::int32_t place, std::int64_t round, int way) const {
  const std::int64_t turns = hops_below(replicas_);
  const std::int64_t hop = std::int64_t{1} << (round % turns);
  const auto hopped = [&](std::int64_t from) {
    return (from + way * hop + replicas_) % replicas_;
  };
  if (kind_ != Kind::rotating || round < turns) {
    return static_cast<std::int32_t>(hopped(place));
  }
  std::vector<std::int32_t> places(static_cast<std::size_t>(replicas_));
  std::iota(places.begin(), places.end(), 0);
  const auto deal =
      static_cast<std::uint64_t>(round / turns) * static_cast<std::uint64_t>(replicas_);
  for (std::size_t i = places.size() - 1; i > 0; --i) {
    std::swap(places[i], places[random_.below(deal + i, i + 1)]);
  }
  const auto here = std::find(places.begin(), places.end(), place) - places.begin();
  return places[static_cast<std::size_t>(hopped(here))];
}

std::int32_t GossipGraph::drawn_by(std::int32_t place, std::int64_t round) const {
  const auto others = static_cast<std::uint64_t>(replicas_ - 1);
  const auto draw = static_cast<std::uint64_t>(round) * static_cast<std::uint64_t>(replicas_) +
                    static_cast<std::uint64_t>(place);
  return static_cast<std::int32_t>(
      (static_cast<std::uint64_t>(place) + 1 + random_.below(draw, others)) % (others + 1));
}

}  // namespace troupe
