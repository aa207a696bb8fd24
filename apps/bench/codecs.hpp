// How fast codecs turn numbers into messages and back.
#pragma once

#include "apps/bench/measure.hpp"

namespace troupe {

/// Bytes a second of each codec, encoding and decoding, and of a triad in turn.
Rows codecs_bandwidth(double seconds);

}  // namespace troupe
