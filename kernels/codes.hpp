// Loops of what compresses numbers on their way (runtime/schemes/codecs): on host memory, compiled for
// the machine's vectors. Counts may be 0; pointers need no alignment; inputs and outputs do not overlap.
#pragma once

#include "kernels/random.hpp"
#include "kernels/stream.hpp"

#include <cstdint>

namespace troupe {

/// out[i] = the upper 32 bits of random.bits(first + i).
TROUPE_ON_CPU(
    void draw(const RandomStream& random, std::int64_t first, std::uint32_t* out, std::int64_t n));

}  // namespace troupe

namespace troupe::codes {

/// The function above, of the instruction set in use: with AVX-512, which multiplies 64 bits, it takes a third of the time.
void draw(const RandomStream& random, std::int64_t first, std::uint32_t* out, std::int64_t n);

/// Whether no number is infinite or NaN.
bool finite(const float* x, std::int64_t n);

/// out = scale x + left; `left` may be nullptr. Whether all are finite.
bool add_left(const float* x, float scale, const float* left, float* out, std::int64_t n);

/// x -= y
void subtract(float* x, const float* y, std::int64_t n);

/// left = x - y
void left_of(const float* x, const float* y, float* left, std::int64_t n);

/// y += a x
void add_scaled(float a, const float* x, float* y, std::int64_t n);

/// Sum of x y, in lanes.
float dot(const float* x, const float* y, std::int64_t n);

float greatest(const float* x, std::int64_t n);  // of magnitudes; 0 of none
double sum_of_squares(const float* x, std::int64_t n);

/// The last two and the sum, in double, in one pass.
struct Moments {
  double sum = 0;
  double squares = 0;
  float greatest = 0;
};

Moments moments(const float* x, std::int64_t n);

/// Half precision, to the nearest, ties to even; greater magnitudes become 65504. Finite numbers.
void to_halves(const float* x, std::uint16_t* out, std::int64_t n);
/// Exact, of any 16 bits.
void from_halves(const std::uint16_t* x, float* out, std::int64_t n);

/// bfloat16 likewise; what would round to an infinity becomes the greatest.
void to_bfloats(const float* x, std::uint16_t* out, std::int64_t n);
void from_bfloats(const std::uint16_t* x, float* out, std::int64_t n);

/// To whole numbers of at most `most` <= 127 in magnitude: inverse x, to the nearest, ties to even.
void to_int8(const float* x, float inverse, float most, std::int8_t* out, std::int64_t n);
/// The same, each rounded up where random[i] 2^-32 is below what is above the lower one.
void to_int8_at_random(const float* x,
                       float inverse,
                       float most,
                       const std::uint32_t* random,
                       std::int8_t* out,
                       std::int64_t n);
void from_int8(const std::int8_t* x, float factor, float* out, std::int64_t n);

/// Two of -8..7 in a byte, the first in its lower half. (n + 1) / 2 bytes.
void pack_int4(const std::int8_t* x, std::uint8_t* out, std::int64_t n);
void from_int4(const std::uint8_t* x, float factor, float* out, std::int64_t n);

/// To the 4 bits of E3M0 (a sign, an exponent of 3 bits: 0 and 2^-2 ... 2^4), of inverse x at most 16 in magnitude: to
/// the nearest, ties to the even exponent.
void to_e3m0(const float* x, float inverse, std::int8_t* out, std::int64_t n);
/// The same, up where random[i] 2^-32 is below the share of the way to the greater one.
void to_e3m0_at_random(
    const float* x, float inverse, const std::uint32_t* random, std::int8_t* out, std::int64_t n);
/// Of two in a byte, as pack_int4() leaves them.
void from_e3m0(const std::uint8_t* x, float factor, float* out, std::int64_t n);

/// To levels of a norm with a sign: floor(levels |x| / norm + random[i] 2^-32), at most `levels` < 2^15; 24 bits of the random
/// numbers count.
void to_levels(const float* x,
               float norm,
               float levels,
               const std::uint32_t* random,
               std::int16_t* out,
               std::int64_t n);
void from_levels(const std::int8_t* x, float norm, float levels, float* out, std::int64_t n);

/// To signs: 1 for what is positive, 2 for what is negative, with probability |x| / most, |x| being cut off at `bound`; else 0.
/// 24 bits of the random numbers count.
void to_signs_at_random(const float* x,
                        float bound,
                        float most,
                        const std::uint32_t* random,
                        std::uint8_t* out,
                        std::int64_t n);
/// The lowest two bits of each of 16, the first lowest, to a word.
void pack_int2(const std::uint8_t* x, std::uint32_t* out, std::int64_t words);
/// Of 16 in a word: 1 becomes most, 2 -most, else 0.
void from_int2(const std::uint32_t* x, float most, float* out, std::int64_t words);

/// Sums of what has no sign bit and of what has one, and how many have one.
struct Signs {
  double positive = 0;
  double negative = 0;
  std::int64_t negatives = 0;
};

Signs sums_by_sign(const float* x, std::int64_t n);
/// Sign bits, the first in the lowest bit: (n + 31) / 32 words.
void signs_of(const float* x, std::uint32_t* out, std::int64_t n);
/// Numbers first .. first + n of the bits: set ones become `negative`.
void from_signs(const std::uint32_t* bits,
                std::int64_t first,
                float positive,
                float negative,
                float* out,
                std::int64_t n);

/// Whether a magnitude is above `bound`.
bool any_above(const float* x, float bound, std::int64_t n);

}  // namespace troupe::codes
