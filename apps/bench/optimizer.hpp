// How fast an optimizer's step moves parameters through memory.
#pragma once

#include "apps/bench/measure.hpp"

#include <cstdint>

namespace troupe {

/// a = b + s c, as fast as the compiler makes it: the machine's own bandwidth.
void triad(float* __restrict a,
           const float* __restrict b,
           const float* __restrict c,
           std::int64_t n);

/// Bytes a second of a momentum step, and of a triad in turn.
Row optimizer_bandwidth(double seconds);

}  // namespace troupe
