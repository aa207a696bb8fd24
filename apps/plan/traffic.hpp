// How many bytes a run sends, between stages, replicas and servers, before it is run.
#pragma once

#include "apps/topologies/blueprint.hpp"

#include <optional>
#include <string>
#include <vector>

namespace troupe {

struct Traffic {
  double up = 0;  // bytes of tensors that a replica sends for each of its mini-batches, in the mean
  double down = 0;       // ... and gets of servers
  bool at_most = false;  // fewer where the run has its way: it waits less, or sends less
};

/// As `bytes_sent` of summary.json counts them. A codec's messages are those that it makes of normal numbers. Nothing where
/// nothing is sent, or where it is decided as the run goes on.
std::optional<Traffic> traffic_of(const Blueprint& blueprint);

struct SentBy {
  std::string actor;     // of the first replica, by the name that it has in a run of one
  double bytes = 0;      // of tensors, for each mini-batch of every replica, in the mean
  bool at_most = false;  // as in Traffic
};

/// What the ledger of a trace counts (`troupe trace --ledger`): what goes from stage to stage, to servers and to other
/// replicas. Whoever sends nothing, or what is decided as the run goes on, is not in it; nobody where modules are decoupled, or
/// stages have parts.
std::vector<SentBy> sent_by_actors(const Blueprint& blueprint);

/// Bytes of a sample that the stages of `chunk` send other stages after its forward. What goes back is as much.
std::int64_t bytes_ahead(const Blueprint& blueprint, std::int32_t chunk);

/// Lines of `plan`, or "".
std::string traffic_text(const Blueprint& blueprint);
/// The same of sent_by_actors().
std::string sent_text(const Blueprint& blueprint);

}  // namespace troupe
