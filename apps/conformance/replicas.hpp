// Small runs of several replicas in virtual time, as the conformance kits of rules and exchanges make
// them: replicas of different speeds, of which some may die.
#pragma once

#include "apps/conformance/accounts.hpp"
#include "apps/conformance/conformance.hpp"
#include "apps/conformance/trial.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::conformance {

constexpr std::int64_t kReplicas = 4;
constexpr std::int64_t kReplicaUpdates = 120;

struct ReplicaTrial : Trial {
  Seen seen;
};

/// Which replica dies when it is to work on which of its mini-batches.
struct Death {
  std::int64_t replica = 0;
  std::int64_t batch = 0;
};

/// One stage a replica, whose times vary, so that no two push at one time; kReplicaUpdates updates.
Result<Blueprint> replicas_blueprint(const Assignments& assignments);
ReplicaTrial run_replicas(const Assignments& assignments, const std::vector<Death>& deaths = {});

/// The deaths of run i of a series: the first eight mini-batches of every replica in turn; in every
/// other run a second one.
std::vector<Death> deaths_of(std::int64_t i);

/// "a replica died, the first at its mini-batch 3".
std::string deaths_text(const std::vector<Death>& deaths);

/// The promise "identity" of several replicas' scheme: whether one replica with these assignments, which
/// may say nothing of their number, trains what a plain optimizer does.
Finding one_is_plain(Assignments assignments);

/// The promise "replay".
Finding two_equal_replicas(const Assignments& assignments);

/// The promise "resume": from each of its checkpoints a run ends as it does in one piece.
Finding resumes(Assignments assignments);

}  // namespace troupe::conformance
