// The servers that replicas share: one for each slice of each chunk.
#pragma once

#include "apps/topologies/roster.hpp"
#include "apps/topologies/streams.hpp"
#include "runtime/system/callers.hpp"

#include <memory>
#include <vector>

namespace troupe {

/// A machine of a server, and where its jobs run.
struct ServerSeat {
  ActorId id = 0;
  std::unique_ptr<Machine> machine;
  Device device;
};

/// Whether one of several servers decides for all, as they could decide apart: then it is the first one of the last
/// chunk.
bool one_decides(const Blueprint& blueprint);

/// All machines of all servers, of groups' servers under these, and of further copies, in the order of the roster.
std::vector<ServerSeat> make_servers(const Blueprint& blueprint,
                                     const Roster& who,
                                     InitialStreams& streams);

/// Servers of which there are several copies, and who speaks with them, become such.
void copy_servers(Cast& cast, const Blueprint& blueprint, const Roster& who);

}  // namespace troupe
