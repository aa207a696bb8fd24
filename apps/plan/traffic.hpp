// How many bytes a run sends, between replicas and servers or from replica to replica, before it is run.
#pragma once

#include "apps/topologies/blueprint.hpp"

#include <optional>
#include <string>

namespace troupe {

struct Traffic {
  double up = 0;  // bytes of tensors that a replica sends for each of its mini-batches, in the mean
  double down = 0;       // ... and gets of servers
  bool at_most = false;  // fewer where the run has its way: it waits less, or sends less
};

/// As `bytes_sent` of summary.json counts them. A codec's messages are those that it makes of normal numbers. Nothing where
/// nothing is sent, or where it is decided as the run goes on.
std::optional<Traffic> traffic_of(const Blueprint& blueprint);

/// A line of `plan`, or "".
std::string traffic_text(const Blueprint& blueprint);

}  // namespace troupe
