#include "kernels/functors/coding.hpp"

namespace troupe::cpu::TROUPE_ISA {
namespace {

using coding::bits_of;
using coding::BlockScale;
using coding::Destination;
using coding::magnitude;

std::uint32_t* words_of(const Tensor& message) {
  return reinterpret_cast<std::uint32_t*>(message.data<std::int32_t>());
}

template <bool bfloats>
void encode_halves(const float* x, std::int64_t n, std::uint32_t* words) {
  for (std::int64_t i = 0; i < n; i += 2) {
    words[i / 2] = coding::Halves<bfloats>::word(x, i, n);
  }
}

template <int bits>
void encode_blocks(const MessageCode& code, const float* x, std::int64_t n, std::uint32_t* words) {
  using Numbers = coding::Whole<bits>;
  const coding::Rounding rounding(code);
  std::uint32_t* factor = words;
  std::uint32_t* const numbers = words + (n + code.block - 1) / code.block;
  for (std::int64_t first = 0; first < n; first += code.block) {
    const std::int64_t end = std::min(first + code.block, n);
    std::uint32_t greatest = 0;
    for (std::int64_t i = first; i < end; ++i) {
      greatest = std::max(greatest, magnitude(x[i]));
    }
    const BlockScale scale = coding::block_scale(std::bit_cast<float>(greatest), Numbers::most);
    *factor++ = bits_of(scale.factor);
    for (std::int64_t i = first; i < end; i += Numbers::per_word) {
      numbers[i / Numbers::per_word] = Numbers::word(x, i, end, scale.inverse, rounding);
    }
  }
}

void encode_signs(const MessageCode& code, const float* x, std::int64_t n, std::uint32_t* words) {
  for (const MessageRows& rows : code.rows) {
    const float* row = x + rows.offset;
    for (std::int64_t r = 0; r < rows.count; ++r, row += rows.size, words += 2) {
      coding::SignSums sums{};
      for (std::int64_t i = 0; i < rows.size; ++i) {
        sums.add(row[i]);
      }
      sums.means(rows.size, words);
    }
  }
  for (std::int64_t i = 0; i < n; i += 32) {
    std::uint32_t signs = 0;
    for (std::int64_t k = 0; k < std::min<std::int64_t>(32, n - i); ++k) {
      signs |= (bits_of(x[i + k]) >> 31) << k;
    }
    words[i / 32] = signs;
  }
}

void read(const MessageCode& code, const Tensor& message, std::int64_t n, const Destination& to) {
  coding::with_words(
      code, words_of(message), n, [&](const auto& words, std::int64_t first, std::int64_t size) {
        const Destination part = to.from(first);
        for (std::int64_t i = 0; i < size; ++i) {
          part.put(i, words.number(i));
        }
      });
}

}  // namespace

void add_left(Stream& /*stream*/,
              const Tensor& update,
              float scale,
              const Tensor& left,
              const Tensor& x,
              const Tensor& odd) {
  const float* const from = update.data<float>();
  const float* const rest = left ? left.data<float>() : nullptr;
  float* const to = x.data<float>();
  std::int32_t met = 0;
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    to[i] = coding::plus_left(from[i], scale, rest, i);
    met |= magnitude(to[i]) >= coding::kInfinite ? 1 : 0;
  }
  *odd.data<std::int32_t>() = met;
}

void encode_message(Stream& /*stream*/,
                    const MessageCode& code,
                    const Tensor& x,
                    const Tensor& message) {
  const float* const from = x.data<float>();
  const std::int64_t n = x.elements();
  std::uint32_t* const words = words_of(message);
  switch (code.kind) {
    case CodeKind::halves:
      return encode_halves<false>(from, n, words);
    case CodeKind::bfloats:
      return encode_halves<true>(from, n, words);
    case CodeKind::int8:
      return encode_blocks<8>(code, from, n, words);
    case CodeKind::int4:
      return encode_blocks<4>(code, from, n, words);
    case CodeKind::signs:
      return encode_signs(code, from, n, words);
  }
}

void decode_message(Stream& /*stream*/,
                    const MessageCode& code,
                    const Tensor& message,
                    const Tensor& out) {
  read(code, message, out.elements(), {.out = out.data<float>()});
}

void keep_left(Stream& /*stream*/,
               const MessageCode& code,
               const Tensor& message,
               const Tensor& x,
               const Tensor& odd,
               const Tensor& left) {
  read(code,
       message,
       x.elements(),
       {.x = x.data<float>(), .odd = odd.data<std::int32_t>(), .left = left.data<float>()});
}

}  // namespace troupe::cpu::TROUPE_ISA
