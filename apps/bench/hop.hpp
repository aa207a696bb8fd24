// How long a tensor's handle takes from one actor to another.
#pragma once

#include "apps/bench/measure.hpp"

namespace troupe {

/// Streamed, and to and fro with a wake-up each.
Rows hops(double seconds);

}  // namespace troupe
