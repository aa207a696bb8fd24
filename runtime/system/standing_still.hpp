// The real clock's snapshots: all machines stand still between two turns, which takes as long as the
// longest job that runs.
#pragma once

#include "runtime/system/snapshot.hpp"
#include "runtime/system/theatre.hpp"

#include <caf/actor_system.hpp>

namespace troupe {

/// Lets all machines come to rest, hands their state out by ThreadOptions::snapshot, and lets them go on.
/// Nothing where the run ends meanwhile. From a thread of no actor.
void take_snapshot(caf::actor_system& system, Theatre& theatre);

/// Reads a run's state into its machines and lets them go on from there, in the place of Start.
/// ArchiveError as archive_run(). Before the first message.
void resume(Theatre& theatre, Archive& from);

}  // namespace troupe
