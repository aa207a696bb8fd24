// How far ahead predictions have to look: by as many updates as lie between the weights that a
// mini-batch reads and its own update. A pipeline alone counts its own; on servers the others' count.
#pragma once

#include "messages/proto.hpp"

#include <cstdint>

namespace troupe {

/// Updates of the weights, for updates of one replica's own: slope x own + base.
struct Horizon {
  double slope = 1;
  double base = 0;

  /// What a gradient is late by in the mean, of weights that are read `own` of the replica's updates
  /// before its own one. Not rounded.
  double lag(std::int64_t own) const { return slope * static_cast<double>(own) + base; }

  /// The same, for a Reach: rounded to the nearest, at least 0.
  std::int64_t of(std::int64_t own) const;

  /// Updates of the weights in one update of the replica's own; at least 1.
  std::int64_t stride() const;
};

/// The lag of gradients that servers apply, as their exchange and rule have it: R (d + 1) - 1 where each
/// push is an update (RuleScheme::lag). Without servers, and where replicas move by themselves and so
/// predict by themselves, d.
Horizon lag_of(const proto::Experiment& experiment);

/// The same where the exchange has replicas that move by themselves: what is late at the server, whoever
/// predicts. For a rule that sends a prediction (lwp).
Horizon lag_at_servers(const proto::Experiment& experiment);

/// Pushes that a gradient finds before it, of a chunk that is `delay` late in its pipeline. A push stands
/// for `n_push` mini-batches, of which the mean one waits for half of the others.
double pushes_between(const proto::Experiment& experiment, double delay);

/// Pushes that each replica makes from the moment that it reads weights to the push that is made of them, that one
/// included: d + 1 where each mini-batch is a push. A rule that follows the velocity of each replica looks this far
/// ahead (dana_*, smega2); with replicas.horizon `paper` it is 1, as the papers' workers have no pipeline.
std::int64_t own_pushes_ahead(const proto::Experiment& experiment, std::int64_t delay);

/// gamma + gamma^2 + ... + gamma^`pushes`: by how many times its rate a velocity moves the weights in as many pushes
/// without a gradient. With one push it is gamma itself.
double velocity_reach(double gamma, std::int64_t pushes);

/// What predictions look ahead: lag_of(), or where replicas.horizon is `paper` d.
Horizon horizon_of(const proto::Experiment& experiment);

}  // namespace troupe
