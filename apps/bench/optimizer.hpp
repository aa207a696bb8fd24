// How fast an optimizer's step moves parameters through memory.
#pragma once

#include "apps/bench/measure.hpp"

namespace troupe {

/// Bytes a second of a momentum step, and of a triad in turn.
Row optimizer_bandwidth(double seconds);

}  // namespace troupe
