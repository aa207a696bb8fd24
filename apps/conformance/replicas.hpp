// Small runs of several replicas under a rule in virtual time, in which replicas may die.
#pragma once

#include "apps/conformance/accounts.hpp"
#include "apps/conformance/trial.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::conformance {

inline constexpr std::int64_t kReplicas = 4;

struct ReplicasTrial {
  std::string trouble;  // why it did not end as it should; "" where it did
  RunResult result;
  Seen seen;
};

/// Which replica dies when it is to work on which of its mini-batches.
struct Death {
  std::int64_t replica = 0;
  std::int64_t batch = 0;
};

/// kReplicas replicas of one stage whose times vary, with the assignments on top; 120 updates.
ReplicasTrial run_replicas(const Assignments& assignments, const std::vector<Death>& deaths = {});

/// The same, as far as it can be known before it is run.
Result<Blueprint> replicas_blueprint(const Assignments& assignments);

}  // namespace troupe::conformance
