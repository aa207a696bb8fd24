// Whose weights a replica averages its own with, where replicas gossip: directed graphs over the replicas,
// the same or another one in each round. Every replica makes the whole graph of a round by itself. A graph is drawn
// over places; when replicas have died, those that are left move up, so that they have the graph of so few replicas
// and not what the dead have left of a larger one, which may have fallen apart.
//
// In all of these graphs each replica hears as many others as hear it (in `random` on average), and an
// average has equal shares: the matrix of shares W is doubly stochastic, so that averaging keeps the sum of
// all weights and brings their distance from the mean down by the square of W's second singular value.
#pragma once

#include "kernels/random.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

/// Who is left of `all` replicas, and in which order: they move up where others have gone.
struct Members {
  std::int32_t all = 0;
  std::vector<std::int32_t> gone{};  // in rising order

  std::int32_t count() const { return all - static_cast<std::int32_t>(gone.size()); }

  /// -1: it is no member.
  std::int32_t place_of(std::int32_t replica) const;
  std::int32_t at(std::int32_t place) const;
};

/// How many numbers this program has drawn for graphs so far: what tests count.
std::int64_t gossip_draws();

class GossipGraph {
 public:
  enum class Kind : std::uint8_t {
    ring,
    torus,
    exponential,
    one_peer,
    rotating,
    groups,
    complete,
    random,  // each replica tells one that it draws: not doubly stochastic, for push-sum
  };

  /// `group`: of `groups`. ContractError for fewer than two replicas.
  GossipGraph(Kind kind, std::int32_t replicas, std::int64_t group, std::uint64_t seed);

  /// The same kind of graph over the members without these replicas, of which some are left.
  GossipGraph without(const std::vector<std::int32_t>& gone) const;

  /// Whom the replica tells its weights in round 0, 1, ..., and whom it hears: in rising order, each once,
  /// itself not among them. Nobody where it is no member.
  std::vector<std::int32_t> told_by(std::int32_t replica, std::int64_t round) const;
  std::vector<std::int32_t> heard_by(std::int32_t replica, std::int64_t round) const;

  /// The most messages of one replica in a round.
  std::size_t messages_max() const;

  /// Of `groups`: dimensions of the grid, so that after as many rounds everybody has heard of everybody. 1 of others.
  std::int64_t dimensions() const;

 private:
  std::vector<std::int32_t> neighbours(std::int32_t place, std::int64_t round, int way) const;
  std::vector<std::int32_t> on_torus(std::int32_t place) const;
  std::vector<std::int32_t> in_group(std::int32_t place, std::int64_t round) const;
  std::int32_t one_hop(std::int32_t place, std::int64_t round, int way) const;
  std::vector<std::int32_t> members_at(std::vector<std::int32_t> places) const;

  Kind kind_;
  Members members_;        // each replica has a graph, so it does not list all the others
  std::int32_t replicas_;  // members
  std::int64_t group_;
  std::uint64_t seed_;
};

}  // namespace troupe
