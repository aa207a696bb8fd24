// What `troupe run` and `troupe sim` say when a run has come to its end.
#pragma once

#include "apps/run/phases.hpp"
#include "apps/run/run.hpp"

#include <string>

namespace troupe {

struct Console;

/// On stderr; nothing of an end that was meant.
void print_cause(Console& console,
                 int exit_code,
                 const std::string& cause,
                 const proto::Experiment& experiment,
                 const Summary& summary);

/// `directory`: of the run's files; "": none.
void print_summary(Console& console, const RunResult& result, const std::string& directory);

/// "hint: ..." where the run is no better on the test data than one answer for all would be; else "".
std::string constant_hint(const Blueprint& blueprint, const Summary& summary);

/// A line a phase.
void print_phases(Console& console, const PhasesResult& result, const std::string& directory);

}  // namespace troupe
