// The servers that replicas share: one for each slice of each chunk.
#pragma once

#include "apps/topologies/roster.hpp"
#include "apps/topologies/streams.hpp"
#include "runtime/schemes/policies/view.hpp"
#include "runtime/system/machine.hpp"

#include <memory>
#include <vector>

namespace troupe {

/// A machine of a server, and where its jobs run.
struct ServerSeat {
  ActorId id = 0;
  std::unique_ptr<Machine> machine;
  Device device;
};

/// The predictions that a chunk's plan asks for, whenever.
std::vector<Reach> all_reaches(const ViewPlan& plan);

/// All machines of all servers, and of groups' servers under these, in the order of the roster.
std::vector<ServerSeat> make_servers(const Blueprint& blueprint,
                                     const Roster& who,
                                     InitialStreams& streams);

}  // namespace troupe
