// How many messages a second the virtual clock delivers.
#pragma once

#include "apps/bench/measure.hpp"

namespace troupe {

/// In a pipeline of 64 stages that compute nothing.
Row virtual_clock(double seconds);

}  // namespace troupe
