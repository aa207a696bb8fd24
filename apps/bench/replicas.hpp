// Two replicas on threads: what sharing their weights costs them.
#pragma once

#include "apps/bench/loop.hpp"
#include "apps/bench/measure.hpp"

#include <cstdint>
#include <string>

namespace troupe {

constexpr std::int64_t kReplicasBatch = 128;
constexpr const char* kReplicasMlp = "mlp { hidden: [1024, 1024] }";
constexpr const char* kReplicasServer = "rule { asgd {} }";

/// Seconds that two replicas of a model (textproto of an experiment's; input 28x28x1), each a
/// thread, take for `updates` mini-batches of kReplicasBatch each, joined by `exchange` (textproto of an
/// experiment's replicas, without the count).
double seconds_of_two_replicas(const std::string& model,
                               const std::string& exchange,
                               std::int64_t updates);

/// Rows of `troupe bench replicas`.
Rows replicas(double seconds);

}  // namespace troupe
