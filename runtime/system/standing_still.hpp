// The real clock's snapshots: all machines stand still between two turns, which takes as long as the
// longest job that runs.
#pragma once

#include "runtime/system/snapshot.hpp"
#include "runtime/system/theatre.hpp"

#include <functional>
#include <optional>

namespace troupe {

/// Lets all machines come to rest, hands their state out by ThreadOptions::snapshot, and lets them go on.
/// Nothing where the run ends meanwhile. From a thread of no actor; where the Director is.
void take_snapshot(Theatre& theatre);

/// Lets the machines here come to rest: their state, as archive_part() writes it; nothing where the halt was given
/// up. They stand still until thaw_all(). ArchiveError where one cannot be written. From a thread of no actor.
std::optional<Archived> state_at_rest(Theatre& theatre);

/// Returns when every machine here has taken what had been sent to it, at once or for later, before this was called.
/// Not while machines stand still. False where `given_up`, asked ten times a second, says so before what comes later
/// has come. From a thread of no actor.
bool await_turns(const Theatre& theatre, const std::function<bool()>& given_up);

// -- how a run goes on, in this order

/// Before the first message: whatever comes is kept for later.
void freeze_all(const Theatre& theatre);
/// Gives frozen machines the messages of `state` to keep. Before the first message.
void take_up(Theatre& theatre, const RunState& state);
/// Alarms, and the ends of machines that are gone.
void wake_up(Theatre& theatre, const RunState& state);
void thaw_all(const Theatre& theatre);

}  // namespace troupe
