// The whole program but its main(): for programs that register schemes of their own first.
#pragma once

#include "kernels/result.hpp"

#include <functional>

namespace troupe {

/// The command line on the process's standard streams, a closed one opened on /dev/null. From here
/// on the process ignores SIGPIPE and SIGXFSZ. Returns the exit code: 0 done, 1 a rule does not
/// conform, 2 usage, 3 data, 4 diverged, 5 lost, 130 interrupted. Never throws. `prepare`: as Console has it.
int run_command_line(int argc, const char* const* argv, std::function<Result<void>()> prepare = {});

}  // namespace troupe
