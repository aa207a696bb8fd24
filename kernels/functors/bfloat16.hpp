// bfloat16: the upper half of a float32, so the same range with 8 bits of significance instead of 24. Host and
// device. Rounding is to the nearest, ties to even, as AVX512_BF16 and Tensor Cores do; unlike AVX512_BF16 it keeps
// subnormal numbers.
#pragma once

#include "kernels/hd.hpp"

#include <bit>
#include <cstdint>

namespace troupe {

struct BFloat16 {
  std::uint16_t bits = 0;
};

/// The nearest bfloat16; beyond the greatest an infinity. NaN stays NaN.
TROUPE_HD inline BFloat16 to_bfloat16(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  // The same in one instruction, but that every NaN becomes one and the same.
  std::uint16_t rounded = 0;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(x));
  return {rounded};
#else
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    // A NaN whose only payload is in the lower half would become an infinity.
    return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  }
  const std::uint32_t odd = (bits >> 16) & 1u;
  return {static_cast<std::uint16_t>((bits + 0x7fffu + odd) >> 16)};
#endif
}

/// Exact. A float is what it is, so that loops over either read alike.
TROUPE_HD inline float to_float(BFloat16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

TROUPE_HD inline float to_float(float x) {
  return x;
}

/// The nearest T.
template <class T>
TROUPE_HD T from_float(float x);

template <>
TROUPE_HD inline float from_float<float>(float x) {
  return x;
}

template <>
TROUPE_HD inline BFloat16 from_float<BFloat16>(float x) {
  return to_bfloat16(x);
}

}  // namespace troupe
