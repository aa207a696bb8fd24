// What compresses one number, or makes one word of a message, written once for host and device
// (codes.hpp, coding.hpp). Explicit float operations, no fused multiply-add, so that a message is the
// same in every bit wherever it is made.
#pragma once

#include "kernels/coding.hpp"
#include "kernels/hd.hpp"
#include "kernels/random.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace troupe::coding {

constexpr std::uint32_t kSign = 0x80000000u;
constexpr std::uint32_t kInfinite = 0x7f800000u;

TROUPE_HD inline std::uint32_t bits_of(float x) {
  return std::bit_cast<std::uint32_t>(x);
}

TROUPE_HD inline std::uint32_t magnitude(float x) {
  return bits_of(x) & ~kSign;
}

/// Number i of what is to be sent: `left` may be null, and is then nothing, not even a zero, which
/// would take the sign from a -0.
TROUPE_HD inline float plus_left(float update, float scale, const float* left, std::int64_t i) {
  const float scaled = scale * update;
  return left ? scaled + left[i] : scaled;
}

// -- 16 bits a number ---------------------------------------------------------------

/// Of finite numbers; the greatest half is the most that comes out.
TROUPE_HD inline std::uint32_t half_of(float x) {
  constexpr std::uint32_t kGreatest = 0x477fe000u;  // 65504
  constexpr std::uint32_t kNormal = 0x38800000u;    // 2^-14
  const std::uint32_t mag = std::min(magnitude(x), kGreatest);
  const std::uint32_t normal = ((mag + 0xfffu + ((mag >> 13) & 1u)) >> 13) - (112u << 10);
  // 0.5 has the spacing of the subnormal halves: adding it rounds to them.
  const std::uint32_t small = bits_of(std::bit_cast<float>(mag) + 0.5f) - 0x3f000000u;
  return (mag < kNormal ? small : normal) | ((bits_of(x) & kSign) >> 16);
}

TROUPE_HD inline float float_of_half(std::uint32_t half) {
  const std::uint32_t mag = half & 0x7fffu;
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t small =
      bits_of(static_cast<float>(static_cast<std::int32_t>(mag)) * 0x1p-24f);
  const std::uint32_t normal = (mag << 13) + (112u << 23);
  const std::uint32_t other = (mag << 13) | kInfinite;
  const std::uint32_t bits = mag < 0x400u ? small : mag >= 0x7c00u ? other : normal;
  return std::bit_cast<float>(bits | sign);
}

/// Of finite numbers; what would round to an infinity becomes the greatest, unlike to_bfloat16().
TROUPE_HD inline std::uint32_t bfloat_of(float x) {
  const std::uint32_t mag = std::min(magnitude(x), 0x7f7f0000u);
  const std::uint32_t rounded = (mag + 0x7fffu + ((mag >> 16) & 1u)) >> 16;
  return rounded | ((bits_of(x) & kSign) >> 16);
}

TROUPE_HD inline float float_of_bfloat(std::uint32_t bfloat) {
  return std::bit_cast<float>(bfloat << 16);
}

// -- whole numbers times a factor ---------------------------------------------------

/// To the nearest whole number, ties to even, of magnitudes below 2^22.
TROUPE_HD inline std::int32_t nearest(float x) {
  constexpr float kMagic = 12582912.0f;  // 1.5 2^23, whose spacing is 1
  return static_cast<std::int32_t>(bits_of(x + kMagic)) - static_cast<std::int32_t>(0x4b400000);
}

/// A NaN becomes `most`.
TROUPE_HD inline float within(float x, float most) {
  return std::max(-most, std::min(most, x));
}

TROUPE_HD inline std::int32_t rounded(float x, float inverse, float most) {
  return nearest(within(inverse * x, most));
}

/// Up where random 2^-32 is below what is above the lower one.
TROUPE_HD inline std::int32_t rounded_at_random(float x,
                                                float inverse,
                                                float most,
                                                std::uint32_t random) {
  const float shift = static_cast<float>(static_cast<std::int32_t>(random >> 8)) * 0x1p-24f;
  return static_cast<std::int32_t>(within(std::floor(within(inverse * x, most) + shift), most));
}

struct BlockScale {
  float factor;
  float inverse;
};

/// Both 0 where there is nothing that a number could be divided by.
TROUPE_HD inline BlockScale block_scale(float greatest, float most) {
  const float factor = greatest / most;
  const float inverse = 1 / factor;
  return magnitude(inverse) < kInfinite ? BlockScale{factor, inverse} : BlockScale{0, 0};
}

// -- 4 bits a number, E3M0 ------------------------------------------------------------
//
// A sign and an exponent of 3 bits with the bias 2^2 - 1, as IEEE 754 has them, without a mantissa, infinities and NaNs:
// exponent 0 is 0, and e = 1 .. 7 is 2^(e-3), from 1/4 to 16.

TROUPE_HD inline std::uint32_t e3m0(float x, std::uint32_t exponent) {
  return exponent | ((bits_of(x) & kSign) >> 28);
}

/// The exponent of magnitudes that are neither below 1/4 nor, by more than a rounding, above 16.
TROUPE_HD inline std::uint32_t exponent_of_e3m0(std::uint32_t bits) {
  return std::min((bits >> 23) - 124u, 7u);
}

/// To the nearest, ties to the even exponent.
TROUPE_HD inline std::uint32_t e3m0_of(float x, float inverse) {
  const std::uint32_t bits = magnitude(inverse * x);
  const float y = std::bit_cast<float>(bits);
  const std::uint32_t normal = exponent_of_e3m0(bits + 0x3fffffu + ((bits >> 23) & 1u));
  return e3m0(x, y < 0.25f ? (y > 0.125f ? 1u : 0u) : normal);
}

/// Up where random 2^-32 is below the share of the way to the greater one.
TROUPE_HD inline std::uint32_t e3m0_at_random(float x, float inverse, std::uint32_t random) {
  const std::uint32_t bits = magnitude(inverse * x);
  const float y = std::bit_cast<float>(bits);
  const float share = static_cast<float>(static_cast<std::int32_t>(random >> 8)) * 0x1p-24f;
  const std::uint32_t normal = exponent_of_e3m0(bits + (random >> 9));
  return e3m0(x, y < 0.25f ? (share < 4 * y ? 1u : 0u) : normal);
}

/// Of the lowest 4 bits.
TROUPE_HD inline float float_of_e3m0(std::uint32_t code) {
  const std::uint32_t exponent = code & 7u;
  const std::uint32_t bits = exponent == 0 ? 0u : (exponent + 124u) << 23;
  return std::bit_cast<float>(bits | (code & 8u) << 28);
}

// -- words of a message (MessageCode) -------------------------------------------------

/// Of two numbers of 16 bits each.
template <bool bfloats>
struct Halves {
  TROUPE_HD static std::uint32_t bits(float x) { return bfloats ? bfloat_of(x) : half_of(x); }

  TROUPE_HD static std::uint32_t word(const float* x, std::int64_t first, std::int64_t n) {
    return bits(x[first]) | (first + 1 < n ? bits(x[first + 1]) << 16 : 0u);
  }

  const std::uint32_t* words;

  TROUPE_HD float number(std::int64_t i) const {
    const std::uint32_t low = (words[i / 2] >> (16 * (i % 2))) & 0xffffu;
    return bfloats ? float_of_bfloat(low) : float_of_half(low);
  }
};

/// How the numbers of a block become whole ones.
struct Rounding {
  bool at_random;
  RandomStream random;

  explicit Rounding(const MessageCode& code)
      : at_random(code.random.has_value()),
        random(code.random.value_or(RandomStream(0, Purpose::sample))) {}
};

/// Of a block's numbers, `bits` each; the words are behind the factors of all blocks.
template <int bits>
struct Whole {
  static constexpr std::int64_t per_word = 32 / bits;
  static constexpr float most = static_cast<float>((1 << (bits - 1)) - 1);
  static constexpr std::uint32_t mask = (1u << bits) - 1u;

  TROUPE_HD static std::uint32_t word(const float* x,
                                      std::int64_t first,
                                      std::int64_t end,
                                      float inverse,
                                      const Rounding& rounding) {
    std::uint32_t made = 0;
    for (int k = 0; k < per_word && first + k < end; ++k) {
      const auto random = static_cast<std::uint64_t>(first + k);
      const std::int32_t number =
          rounding.at_random
              ? rounded_at_random(x[first + k],
                                  inverse,
                                  most,
                                  static_cast<std::uint32_t>(rounding.random.bits(random) >> 32))
              : rounded(x[first + k], inverse, most);
      made |= (static_cast<std::uint32_t>(number) & mask) << (bits * k);
    }
    return made;
  }

  const std::uint32_t* factors;
  const std::uint32_t* words;
  std::uint32_t block;  // numbers have 31 bits, whose division is quicker than that of 64

  TROUPE_HD float number(std::int64_t i) const {
    constexpr auto half = std::int32_t{1} << (bits - 1);
    const auto place = static_cast<std::uint32_t>(i);
    const std::uint32_t low = (words[place / per_word] >> (bits * (place % per_word))) & mask;
    return std::bit_cast<float>(factors[place / block]) *
           static_cast<float>((static_cast<std::int32_t>(low) ^ half) - half);
  }
};

/// Of rows of one size: their two means each, and the signs of all numbers of the message.
struct Signs {
  const std::uint32_t* means;  // of these rows
  const std::uint32_t* words;
  std::int64_t offset;  // of the first row
  std::uint32_t size;   // of a row

  TROUPE_HD float number(std::int64_t i) const {
    const std::int64_t at = offset + i;
    const std::uint32_t negative = (words[at / 32] >> (at % 32)) & 1u;
    const std::int64_t row = static_cast<std::uint32_t>(i) / size;
    return std::bit_cast<float>(means[2 * row + negative]);
  }
};

/// What has a sign bit in a row and what has none.
struct SignSums {
  double positive;
  double negative;
  std::int64_t negatives;

  TROUPE_HD void add(float x) {
    const bool minus = (bits_of(x) & kSign) != 0;
    positive += minus ? 0.0 : static_cast<double>(x);
    negative += minus ? static_cast<double>(x) : 0.0;
    negatives += minus ? 1 : 0;
  }

  TROUPE_HD void add(const SignSums& other) {
    positive += other.positive;
    negative += other.negative;
    negatives += other.negatives;
  }

  /// Of `size` numbers; 0 where there are none of a sign.
  TROUPE_HD void means(std::int64_t size, std::uint32_t* to) const {
    to[0] = mean(positive, size - negatives);
    to[1] = mean(negative, negatives);
  }

 private:
  TROUPE_HD static std::uint32_t mean(double sum, std::int64_t count) {
    return bits_of(count > 0 ? static_cast<float>(sum / static_cast<double>(count)) : 0.0f);
  }
};

/// Where the numbers of a message go: to `out`, or what they leave of x to `left`, where x is finite.
struct Destination {
  float* out = nullptr;
  const float* x = nullptr;
  const std::int32_t* odd = nullptr;
  float* left = nullptr;

  TROUPE_HD void put(std::int64_t i, float number) const {
    if (out) {
      out[i] = number;
    } else if (*odd == 0) {
      left[i] = x[i] - number;
    }
  }

  /// The same from number `first` on.
  Destination from(std::int64_t first) const {
    return out ? Destination{.out = out + first}
               : Destination{.x = x + first, .odd = odd, .left = left + first};
  }
};

/// Calls f(words, first, size) with what reads numbers [first, first + size) of the message of n: Halves,
/// Whole or Signs.
template <class F>
void with_words(const MessageCode& code, const std::uint32_t* message, std::int64_t n, F&& f) {
  const auto whole = [&]<int bits>(Whole<bits>*) {
    const std::int64_t blocks = (n + code.block - 1) / code.block;
    f(Whole<bits>{message, message + blocks, static_cast<std::uint32_t>(code.block)},
      std::int64_t{0},
      n);
  };
  switch (code.kind) {
    case CodeKind::halves:
      return f(Halves<false>{message}, std::int64_t{0}, n);
    case CodeKind::bfloats:
      return f(Halves<true>{message}, std::int64_t{0}, n);
    case CodeKind::int8:
      return whole(static_cast<Whole<8>*>(nullptr));
    case CodeKind::int4:
      return whole(static_cast<Whole<4>*>(nullptr));
    case CodeKind::signs:
      break;
  }
  const std::uint32_t* means = message;
  const std::uint32_t* const bits = message + 2 * code.row_count();
  for (const MessageRows& rows : code.rows) {
    f(Signs{means, bits, rows.offset, static_cast<std::uint32_t>(rows.size)},
      rows.offset,
      rows.size * rows.count);
    means += 2 * rows.count;
  }
}

}  // namespace troupe::coding
