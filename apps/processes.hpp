// troupe run --processes: one experiment played by several processes of this machine.
#pragma once

#include "apps/run.hpp"

#include <iosfwd>

namespace troupe {

struct Console;

/// Error (usage) where a run cannot be played by so many processes, whatever its network; place() of
/// topologies/placement.hpp has the rest.
Result<void> check_processes(const proto::Experiment& experiment, std::int64_t processes);

/// As run_experiment on the real clock, in `processes` processes (2 or more): this one is the lead and the
/// others are its own program, started with the word `node`. `notes`: where who plays what is told; null:
/// nowhere. `program`: instead of this one. Error, besides run_experiment's, (usage) where the experiment
/// cannot be played so, and whatever keeps another process from taking part.
Result<RunResult> run_in_processes(const Blueprint& blueprint,
                                   int processes,
                                   RunOptions options,
                                   std::ostream* notes,
                                   const std::string& program = "/proc/self/exe");

/// What a process does that was started so; its exit code. For the command line alone.
int play_as_node(Console& console);

}  // namespace troupe
