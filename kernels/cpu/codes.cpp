#include "kernels/codes.hpp"

#include "kernels/functors/coding.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace troupe::codes {
namespace {

using coding::bits_of;
using coding::kInfinite;
using coding::magnitude;

constexpr std::int64_t kWide = 16;  // accumulators of a sum that stand beside each other
constexpr std::int64_t kBlock =
    1024;  // numbers that are summed in float32 before double takes over

/// Each lane keeps the or of what it has met.
template <class F>
std::uint32_t any_of(const float* x, std::int64_t n, F&& f) {
  std::uint32_t met = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    met |= f(x[i]);
  }
  return met;
}

template <class F>
double blockwise(std::int64_t n, F&& block) {
  double total = 0;
  for (std::int64_t first = 0; first < n; first += kBlock) {
    total += block(first, std::min(kBlock, n - first));
  }
  return total;
}

/// The sum of f(i) for i below n, in kWide lanes.
template <class T, class F>
T in_lanes(std::int64_t n, F&& f) {
  T lanes[kWide] = {};
  std::int64_t i = 0;
  for (; i + kWide <= n; i += kWide) {
    for (std::int64_t lane = 0; lane < kWide; ++lane) {
      lanes[lane] += f(i + lane);
    }
  }
  T total = 0;
  for (const T lane : lanes) {
    total += lane;
  }
  for (; i < n; ++i) {
    total += f(i);
  }
  return total;
}

/// out[i] = of(i) for i below n.
template <class T, class F>
void each(T* out, std::int64_t n, F&& of) {
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = static_cast<T>(of(i));
  }
}

/// out[i] = of(the i-th of n numbers of four bits).
template <class F>
void each_of_four_bits(const std::uint8_t* x, float* out, std::int64_t n, F&& of) {
  for (std::int64_t i = 0; i < n / 2; ++i) {
    out[2 * i] = of(x[i] & 15);
    out[2 * i + 1] = of(x[i] >> 4);
  }
  if (n % 2 != 0) {
    out[n - 1] = of(x[n / 2] & 15);
  }
}

}  // namespace

bool finite(const float* x, std::int64_t n) {
  return blockwise(n, [&](std::int64_t first, std::int64_t size) -> double {
           return any_of(x + first, size, [](float v) -> std::uint32_t {
             return magnitude(v) >= kInfinite ? 1 : 0;
           });
         }) == 0;
}

bool add_left(const float* x, float scale, const float* left, float* out, std::int64_t n) {
  std::uint32_t odd = 0;
  if (left) {
    for (std::int64_t i = 0; i < n; ++i) {
      out[i] = scale * x[i] + left[i];
      odd |= magnitude(out[i]) >= kInfinite ? 1u : 0u;
    }
  } else {
    for (std::int64_t i = 0; i < n; ++i) {
      out[i] = scale * x[i];
      odd |= magnitude(out[i]) >= kInfinite ? 1u : 0u;
    }
  }
  return odd == 0;
}

void subtract(float* x, const float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    x[i] -= y[i];
  }
}

void left_of(const float* x, const float* y, float* left, std::int64_t n) {
  each(left, n, [&](std::int64_t i) { return x[i] - y[i]; });
}

void add_scaled(float a, const float* x, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] += a * x[i];
  }
}

float dot(const float* x, const float* y, std::int64_t n) {
  return in_lanes<float>(n, [&](std::int64_t i) { return x[i] * y[i]; });
}

float greatest(const float* x, std::int64_t n) {
  std::uint32_t most = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    most = std::max(most, magnitude(x[i]));
  }
  return std::bit_cast<float>(most);
}

double sum_of_squares(const float* x, std::int64_t n) {
  return in_lanes<double>(n, [&](std::int64_t i) {
    const auto wide = static_cast<double>(x[i]);
    return wide * wide;
  });
}

Moments moments(const float* x, std::int64_t n) {
  double sums[kWide] = {};
  double squares[kWide] = {};
  Moments all;
  std::int64_t i = 0;
  for (; i + kWide <= n; i += kWide) {
    for (std::int64_t lane = 0; lane < kWide; ++lane) {
      const auto wide = static_cast<double>(x[i + lane]);
      sums[lane] += wide;
      squares[lane] += wide * wide;
    }
  }
  for (std::int64_t lane = 0; lane < kWide; ++lane) {
    all.sum += sums[lane];
    all.squares += squares[lane];
  }
  for (; i < n; ++i) {
    const auto wide = static_cast<double>(x[i]);
    all.sum += wide;
    all.squares += wide * wide;
  }
  all.greatest = greatest(x, n);
  return all;
}

void to_halves(const float* x, std::uint16_t* out, std::int64_t n) {
  each(out, n, [&](std::int64_t i) { return coding::half_of(x[i]); });
}

void from_halves(const std::uint16_t* x, float* out, std::int64_t n) {
  each(out, n, [&](std::int64_t i) { return coding::float_of_half(x[i]); });
}

void to_bfloats(const float* x, std::uint16_t* out, std::int64_t n) {
  each(out, n, [&](std::int64_t i) { return coding::bfloat_of(x[i]); });
}

void from_bfloats(const std::uint16_t* x, float* out, std::int64_t n) {
  each(out, n, [&](std::int64_t i) { return coding::float_of_bfloat(x[i]); });
}

void to_int8(const float* x, float inverse, float most, std::int8_t* out, std::int64_t n) {
  each(out, n, [&](std::int64_t i) { return coding::rounded(x[i], inverse, most); });
}

void to_int8_at_random(const float* x,
                       float inverse,
                       float most,
                       const std::uint32_t* random,
                       std::int8_t* out,
                       std::int64_t n) {
  each(out, n, [&](std::int64_t i) {
    return coding::rounded_at_random(x[i], inverse, most, random[i]);
  });
}

void from_int8(const std::int8_t* x, float factor, float* out, std::int64_t n) {
  each(out, n, [&](std::int64_t i) { return factor * static_cast<float>(x[i]); });
}

void pack_int4(const std::int8_t* x, std::uint8_t* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n / 2; ++i) {
    out[i] = static_cast<std::uint8_t>((x[2 * i] & 15) | ((x[2 * i + 1] & 15) << 4));
  }
  if (n % 2 != 0) {
    out[n / 2] = static_cast<std::uint8_t>(x[n - 1] & 15);
  }
}

void from_int4(const std::uint8_t* x, float factor, float* out, std::int64_t n) {
  each_of_four_bits(x, out, n, [factor](std::int32_t number) {
    return factor * static_cast<float>((number ^ 8) - 8);
  });
}

void to_e3m0(const float* x, float inverse, std::int8_t* out, std::int64_t n) {
  each(out, n, [&](std::int64_t i) { return coding::e3m0_of(x[i], inverse); });
}

void to_e3m0_at_random(
    const float* x, float inverse, const std::uint32_t* random, std::int8_t* out, std::int64_t n) {
  each(out, n, [&](std::int64_t i) { return coding::e3m0_at_random(x[i], inverse, random[i]); });
}

void from_e3m0(const std::uint8_t* x, float factor, float* out, std::int64_t n) {
  each_of_four_bits(x, out, n, [factor](std::int32_t number) {
    return factor * coding::float_of_e3m0(static_cast<std::uint32_t>(number));
  });
}

void to_levels(const float* x,
               float norm,
               float levels,
               const std::uint32_t* random,
               std::int16_t* out,
               std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float share = norm > 0 ? std::bit_cast<float>(magnitude(x[i])) / norm : 0.0f;
    const float drawn = static_cast<float>(random[i] >> 8) * 0x1p-24f;
    // No number here is below 0 or above 2^15 + 1: to truncate is to round down.
    const auto level = static_cast<std::int32_t>(std::min(levels * share + drawn, levels));
    const auto sign = static_cast<std::int32_t>(bits_of(x[i])) >> 31;
    out[i] = static_cast<std::int16_t>((level ^ sign) - sign);
  }
}

void from_levels(const std::int8_t* x, float norm, float levels, float* out, std::int64_t n) {
  each(out, n, [&](std::int64_t i) { return norm * (static_cast<float>(x[i]) / levels); });
}

void to_signs_at_random(const float* x,
                        float bound,
                        float most,
                        const std::uint32_t* random,
                        std::uint8_t* out,
                        std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float size = std::bit_cast<float>(magnitude(x[i]));
    const float share = most > 0 ? (size < bound ? size : bound) / most : 0.0f;
    const float drawn = static_cast<float>(random[i] >> 8) * 0x1p-24f;
    const std::uint32_t sign = x[i] < 0 ? 2 : 1;
    out[i] = static_cast<std::uint8_t>(drawn < share ? sign : 0);
  }
}

void pack_int2(const std::uint8_t* x, std::uint32_t* out, std::int64_t words) {
  const auto half = [](const std::uint8_t* from) {
    std::uint64_t v;
    std::memcpy(&v, from, sizeof v);
    v &= 0x0303030303030303u;
    v = (v | v >> 6) & 0x000f000f000f000fu;
    v = (v | v >> 12) & 0x000000ff000000ffu;
    return static_cast<std::uint32_t>(v | v >> 24) & 0xffffu;
  };
  for (std::int64_t word = 0; word < words; ++word) {
    out[word] = half(x + 16 * word) | half(x + 16 * word + 8) << 16;
  }
}

void from_int2(const std::uint32_t* x, float most, float* out, std::int64_t words) {
  for (std::int64_t word = 0; word < words; ++word) {
    const std::uint32_t codes = x[word];
    for (std::uint32_t j = 0; j < 16; ++j) {
      const std::uint32_t code = (codes >> (2 * j)) & 3u;
      const float positive = code == 1 ? most : 0.0f;
      out[16 * word + j] = code == 2 ? -most : positive;
    }
  }
}

Signs sums_by_sign(const float* x, std::int64_t n) {
  Signs all;
  all.positive = blockwise(n, [&](std::int64_t first, std::int64_t size) -> double {
    return in_lanes<float>(size, [&](std::int64_t i) {
      return std::bit_cast<float>(bits_of(x[first + i]) >> 31 ? 0u : bits_of(x[first + i]));
    });
  });
  all.negative = blockwise(n, [&](std::int64_t first, std::int64_t size) -> double {
    return in_lanes<float>(size, [&](std::int64_t i) {
      return std::bit_cast<float>(bits_of(x[first + i]) >> 31 ? bits_of(x[first + i]) : 0u);
    });
  });
  std::int64_t negatives = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    negatives += bits_of(x[i]) >> 31;
  }
  all.negatives = negatives;
  return all;
}

void signs_of(const float* x, std::uint32_t* out, std::int64_t n) {
  for (std::int64_t word = 0; word < n / 32; ++word) {
    std::uint32_t bits = 0;
    for (std::uint32_t j = 0; j < 32; ++j) {
      bits |= (bits_of(x[32 * word + j]) >> 31) << j;
    }
    out[word] = bits;
  }
  if (n % 32 != 0) {
    std::uint32_t bits = 0;
    for (std::int64_t j = 0; j < n % 32; ++j) {
      bits |= (bits_of(x[n - n % 32 + j]) >> 31) << j;
    }
    out[n / 32] = bits;
  }
}

void from_signs(const std::uint32_t* bits,
                std::int64_t first,
                float positive,
                float negative,
                float* out,
                std::int64_t n) {
  std::int64_t i = 0;
  for (; i < n && (first + i) % 32 != 0; ++i) {
    out[i] = (bits[(first + i) / 32] >> ((first + i) % 32)) & 1u ? negative : positive;
  }
  for (; i + 32 <= n; i += 32) {
    const std::uint32_t word = bits[(first + i) / 32];
    for (std::uint32_t j = 0; j < 32; ++j) {
      out[i + j] = (word >> j) & 1u ? negative : positive;
    }
  }
  for (; i < n; ++i) {
    out[i] = (bits[(first + i) / 32] >> ((first + i) % 32)) & 1u ? negative : positive;
  }
}

bool any_above(const float* x, float bound, std::int64_t n) {
  const std::uint32_t limit = bits_of(bound);
  return any_of(x, n, [limit](float v) -> std::uint32_t { return magnitude(v) > limit ? 1 : 0; }) !=
         0;
}

}  // namespace troupe::codes
