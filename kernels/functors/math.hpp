// exp, expm1, sigmoid, tanh and the normal distribution in plain float arithmetic: no library call, no table and no branch, so that
// loops over them vectorise and an element's value does not depend on where in a vector it stands.
// Host and device.
#pragma once

#include "kernels/hd.hpp"

#include <bit>
#include <cstdint>

namespace troupe {

namespace detail {

/// x = n ln 2 + r with |r| <= ln 2 / 2; two_to_n = 2^n, and expm1_r = e^r - 1. For x in [-87, 88];
/// NaN stays NaN.
struct ExpParts {
  float two_to_n;
  float expm1_r;
};

TROUPE_HD inline ExpParts exp_parts(float x) {
  // Adding 1.5 * 2^23 rounds to the nearest integer and leaves that integer in the low bits.
  constexpr float kRound = 12582912.0f;
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0.693359375f;    // 9 bits: n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4f;  // ln 2 - kLn2High
  const float shifted = x * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  // Taylor: the first term left out is below 2e-8 of e^r - 1. Added up in pairs, because loops over
  // this wait for the chain of its steps and not for their number.
  const float r2 = r * r;
  const float q = (0.5f + r * (1.0f / 6.0f)) + r2 * ((1.0f / 24.0f + r * (1.0f / 120.0f)) +
                                                     r2 * (1.0f / 720.0f + r * (1.0f / 5040.0f)));
  const std::uint32_t bits =
      std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kRound);
  return {std::bit_cast<float>((bits + 127u) << 23), q * r2 + r};
}

}  // namespace detail

/// e^x to 2 units in the last place for x in [-87, 88]; beyond that the value at the nearer end.
/// NaN stays NaN.
TROUPE_HD inline float exp_float(float x) {
  const float low = x < -87.0f ? -87.0f : x;
  const float clamped = low > 88.0f ? 88.0f : low;
  const detail::ExpParts parts = detail::exp_parts(clamped);
  return parts.two_to_n * parts.expm1_r + parts.two_to_n;
}

/// e^x - 1, accurate near 0 too.
TROUPE_HD inline float expm1_float(float x) {
  const float low = x < -87.0f ? -87.0f : x;
  const float clamped = low > 88.0f ? 88.0f : low;
  const detail::ExpParts parts = detail::exp_parts(clamped);
  return parts.two_to_n * parts.expm1_r + (parts.two_to_n - 1.0f);
}

/// 1 / (1 + e^-x), accurate towards 0 too; from |x| = 88 on 0 within 1e-38, or 1.
TROUPE_HD inline float sigmoid_float(float x) {
  return 1.0f / (1.0f + exp_float(-x));
}

/// tanh x = e / (e + 2) with e = expm1(2 |x|), and the sign of x; 1 from |x| = 10 on.
TROUPE_HD inline float tanh_float(float x) {
  const float magnitude = x < 0.0f ? -x : x;
  const float twice = 2.0f * magnitude;
  const float e = expm1_float(twice > 20.0f ? 20.0f : twice);
  const float t = e / (e + 2.0f);
  return x < 0.0f ? -t : t;
}

/// The normal distribution function of x, (1 + erf(x / sqrt 2)) / 2, to 3e-7; below 0 to (1 + x^2 / 6) 1e-6 of itself.
TROUPE_HD inline float normal_share_float(float x) {
  // Of t = 1 / (1 + z / 2): the polynomial is log(erfc(z) / t) + z^2 to 6e-8 for z in [0, 10], by least squares on
  // Chebyshev's points.
  const float z = (x < 0.0f ? -x : x) * 0.70710678f;
  const float t = 1.0f / (1.0f + 0.5f * z);
  float p = 0.148791155f;
  p = p * t - 0.701847268f;
  p = p * t + 1.206169534f;
  p = p * t - 0.761984191f;
  p = p * t - 0.025994684f;
  p = p * t - 0.027512091f;
  p = p * t + 0.044362343f;
  p = p * t + 0.384606368f;
  p = p * t + 0.998868407f;
  p = p * t - 1.265459523f;
  const float tail = 0.5f * t * exp_float(p - z * z);
  return x < 0.0f ? tail : 1.0f - tail;
}

}  // namespace troupe
