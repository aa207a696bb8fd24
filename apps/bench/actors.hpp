// What actors and messages cost a pipeline.
#pragma once

#include "apps/bench/measure.hpp"

namespace troupe {

/// Samples a second of the MLP as one stage actor, and of a bare loop over the same kernels, in turn.
Row actors_against_loop(double seconds);

/// Two stages on two cores: what the slowest stage's own work leaves of the time.
Row two_stages(double seconds);

}  // namespace troupe
