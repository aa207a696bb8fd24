// What dropout does to one element, written once for host and device.
#pragma once

#include "kernels/hd.hpp"
#include "kernels/random.hpp"

#include <cstdint>

namespace troupe {

struct Dropout {
  RandomStream random;
  std::uint32_t threshold;  // kept from here on
  float scale;

  /// rate in [0, 1).
  Dropout(const RandomStream& stream, float rate)
      : random(stream),
        // Exact, and below 2^32, as the largest float below 1 is 1 - 2^-24.
        threshold(static_cast<std::uint32_t>(static_cast<double>(rate) * 0x1p32)),
        scale(1.0f / (1.0f - rate)) {}

  TROUPE_HD float apply(std::uint64_t index, float x) const {
    const auto number = static_cast<std::uint32_t>(random.bits(index) >> 32);
    return number >= threshold ? x * scale : 0.0f;
  }
};

}  // namespace troupe
