// A pipeline of two stages in two processes, against the same in two threads of one.
#pragma once

#include "apps/bench/measure.hpp"
#include "kernels/result.hpp"

namespace troupe {

/// Rows of `troupe bench processes`. Starts its own program again, for the other process. Error: that did not work.
Result<Rows> two_processes(double seconds);

}  // namespace troupe
