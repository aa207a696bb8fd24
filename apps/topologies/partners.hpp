// Which processes of a run have something to say to each other: only between these are there channels.
#pragma once

#include "apps/topologies/roster.hpp"

#include <vector>

namespace troupe {

/// By process and process. Everybody and the lead; who plays of one replica; everybody and who plays servers or copies; and
/// where replicas exchange something among themselves who plays shards that do. `process_of`: by ActorId.
std::vector<std::vector<bool>> partners(const Blueprint& blueprint,
                                        const Roster& who,
                                        const std::vector<int>& process_of,
                                        int processes);

}  // namespace troupe
