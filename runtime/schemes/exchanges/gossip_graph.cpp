#include "runtime/schemes/exchanges/gossip_graph.hpp"

#include "kernels/check.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <deque>
#include <memory>
#include <mutex>
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

std::atomic<std::int64_t> draws_made{0};

/// What the members of a graph draw in a round. Every replica needs all of it, whom others have drawn and where it has been
/// dealt to itself: R replicas that drew it anew each would draw R^2 numbers a round.
struct Round {
  GossipGraph::Kind kind;
  std::int32_t members;
  std::uint64_t seed;
  std::int64_t number;  // of random: the round; of rotating: the turn through the hops

  bool operator==(const Round&) const = default;
};

struct Drawn {
  std::vector<std::int32_t> by_place;            // random: whom it tells; rotating: who is there
  std::vector<std::vector<std::int32_t>> heard;  // random: by place, who tells it, in rising order
  std::vector<std::int32_t> where;               // rotating: where a place has been dealt to
};

Drawn draw(const Round& of) {
  const RandomStream random(of.seed, Purpose::peers);
  const auto members = static_cast<std::uint64_t>(of.members);
  const std::uint64_t first = static_cast<std::uint64_t>(of.number) * members;
  draws_made += of.members;
  Drawn made;
  made.by_place.resize(members);
  std::iota(made.by_place.begin(), made.by_place.end(), 0);
  if (of.kind == GossipGraph::Kind::rotating) {
    for (std::size_t i = members - 1; i > 0; --i) {
      std::swap(made.by_place[i], made.by_place[random.below(first + i, i + 1)]);
    }
    made.where.resize(members);
    for (std::size_t i = 0; i < members; ++i) {
      made.where[static_cast<std::size_t>(made.by_place[i])] = static_cast<std::int32_t>(i);
    }
    return made;
  }
  made.heard.resize(members);
  for (std::size_t p = 0; p < members; ++p) {
    const std::size_t told = (p + 1 + random.below(first + p, members - 1)) % members;
    made.by_place[p] = static_cast<std::int32_t>(told);
    made.heard[told].push_back(static_cast<std::int32_t>(p));
  }
  return made;
}

/// Made once for all replicas of this program, which go through the rounds side by side; the last few are kept.
std::shared_ptr<const Drawn> drawn(const Round& of) {
  constexpr std::size_t kKept = 32;
  static std::mutex mutex;
  static std::deque<std::pair<Round, std::shared_ptr<const Drawn>>> kept;
  const std::lock_guard lock(mutex);
  for (const auto& [round, made] : kept) {
    if (round == of) {
      return made;
    }
  }
  kept.emplace_front(of, std::make_shared<const Drawn>(draw(of)));
  if (kept.size() > kKept) {
    kept.pop_back();
  }
  return kept.front().second;
}

}  // namespace

std::int64_t gossip_draws() {
  return draws_made;
}

std::int32_t Members::place_of(std::int32_t replica) const {
  const auto before = std::lower_bound(gone.begin(), gone.end(), replica);
  const bool has_gone = before != gone.end() && *before == replica;
  return has_gone || replica < 0 || replica >= all
             ? -1
             : replica - static_cast<std::int32_t>(before - gone.begin());
}

std::int32_t Members::at(std::int32_t place) const {
  std::int32_t member = place;
  for (const std::int32_t one : gone) {
    if (one > member) {
      break;
    }
    ++member;
  }
  return member;
}

GossipGraph::GossipGraph(Kind kind, std::int32_t replicas, std::int64_t group, std::uint64_t seed)
    : kind_(kind), members_{replicas}, replicas_(replicas), group_(group), seed_(seed) {
  TROUPE_CHECK(replicas >= 2, "[GossipGraph] of ", replicas, " replicas");
  TROUPE_CHECK(kind != Kind::groups || group >= 2, "[GossipGraph] groups of ", group);
}

GossipGraph GossipGraph::without(const std::vector<std::int32_t>& gone) const {
  GossipGraph left = *this;
  for (const std::int32_t r : gone) {
    if (r >= 0 && r < members_.all) {
      left.members_.gone.push_back(r);
    }
  }
  std::vector<std::int32_t>& all = left.members_.gone;
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  left.replicas_ = left.members_.count();
  TROUPE_CHECK(left.replicas_ > 0, "[GossipGraph] no replica is left");
  return left;
}

std::vector<std::int32_t> GossipGraph::told_by(std::int32_t replica, std::int64_t round) const {
  const std::int32_t place = members_.place_of(replica);
  if (place < 0 || replicas_ == 1) {
    return {};
  }
  return members_at(neighbours(place, round, +1));
}

std::vector<std::int32_t> GossipGraph::heard_by(std::int32_t replica, std::int64_t round) const {
  const std::int32_t place = members_.place_of(replica);
  if (place < 0 || replicas_ == 1) {
    return {};
  }
  return members_at(neighbours(place, round, -1));
}

std::vector<std::int32_t> GossipGraph::members_at(std::vector<std::int32_t> places) const {
  for (std::int32_t& place : places) {
    place = members_.at(place);
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
  std::size_t most = told_by(members_.at(0), 0).size();
  for (std::int32_t r = 1; r < replicas_ && kind_ == Kind::groups; ++r) {  // else all have as many
    most = std::max(most, told_by(members_.at(r), 0).size());
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
    case Kind::random: {
      const auto of = drawn({kind_, replicas_, seed_, round});
      const auto p = static_cast<std::size_t>(place);
      all = way > 0 ? std::vector{of->by_place[p]} : of->heard[p];
      break;
    }
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
  const auto dealt = drawn({kind_, replicas_, seed_, round / turns});
  const std::int32_t here = dealt->where[static_cast<std::size_t>(place)];
  return dealt->by_place[static_cast<std::size_t>(hopped(here))];
}

}  // namespace troupe
