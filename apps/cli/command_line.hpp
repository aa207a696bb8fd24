// The command line: finds the verb, checks its options, runs it.
#pragma once

#include "apps/verbs/verb.hpp"

namespace troupe {

/// Returns the exit code: 0 done, 1 a rule does not conform, 2 usage, 3 data, 4 diverged, 5 lost,
/// 130 interrupted. Never throws.
int run_command_line(int argc, const char* const* argv, Console& console);

}  // namespace troupe
