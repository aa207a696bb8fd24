// Messages of numbers (runtime/schemes/codecs), made and read on either backend. On the CPU codes.hpp
// has quicker loops for the same; these here are for the device, and the CPU's are their twins.
// Formulas: functors/coding.hpp.
//
// A message is of 32-bit words, the first number in the lowest bits of a word; bits behind the last
// number are 0. Words of n numbers:
//
//   halves, bfloats   two numbers a word
//   int8, int4        a float factor for each block, then four or eight numbers a word
//   signs             for each row the mean of what has no sign bit and of what has one, then a sign
//                     bit a number
//
// Backends agree in every bit, but for the means of `signs`: the sums are in double, and each backend
// adds in an order of its own, which depends on the rows alone.
#pragma once

#include "kernels/random.hpp"
#include "kernels/stream.hpp"

#include <cstdint>
#include <optional>
#include <span>

namespace troupe {

enum class CodeKind : std::uint8_t { halves, bfloats, int8, int4, signs };

/// `count` rows of `size` numbers each, one behind the other.
struct MessageRows {
  std::int64_t offset = 0;
  std::int64_t size = 0;
  std::int64_t count = 1;
};

struct MessageCode {
  CodeKind kind = CodeKind::halves;
  std::int64_t block = 0;                // int8, int4: a multiple of 8, at most 65536
  std::optional<RandomStream> random{};  // int8, int4: number i is rounded by its bits(i)
  std::span<const MessageRows> rows{};   // signs: in order, together [0, n), none empty

  std::int64_t row_count() const;
  /// Of a message of n numbers.
  std::int64_t words(std::int64_t n) const;
};

/// x = scale update + left, or scale update where `left` is empty; odd = whether one of them is not
/// finite, 0 or 1. Shapes: update, left, x (n), odd (1) int32. x may be update or left.
void add_left(Stream& stream,
              const Tensor& update,
              float scale,
              const Tensor& left,
              const Tensor& x,
              const Tensor& odd);

/// Writes x's message. Of numbers that are not finite it is undefined. Shapes: x (n), n < 2^31,
/// message (words) int32.
void encode_message(Stream& stream,
                    const MessageCode& code,
                    const Tensor& x,
                    const Tensor& message);

/// out = the numbers of the message, whatever its words. Shapes as above.
void decode_message(Stream& stream,
                    const MessageCode& code,
                    const Tensor& message,
                    const Tensor& out);

/// left = x - the numbers of the message, unless odd. Shapes as above.
void keep_left(Stream& stream,
               const MessageCode& code,
               const Tensor& message,
               const Tensor& x,
               const Tensor& odd,
               const Tensor& left);

// The backends: same signatures, arguments already checked.
TROUPE_BACKENDS(add_left);
TROUPE_BACKENDS(encode_message);
TROUPE_BACKENDS(decode_message);
TROUPE_BACKENDS(keep_left);

}  // namespace troupe
