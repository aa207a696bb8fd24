// int8_block, int4_block: whole numbers times a factor for each block.
#include "kernels/codes.hpp"
#include "runtime/schemes/codecs/parts.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace troupe {
namespace {

using codec_parts::parts_of;

/// The factors of the blocks, then the numbers, `bits` each. Blocks are of a multiple of 8 numbers.
class Blocks final : public Codec {
 public:
  Blocks(const proto::BlockCodec& options, int bits)
      : block_(options.block() / 8 * 8),
        at_random_(options.rounding() == proto::BlockCodec::stochastic),
        bits_(bits),
        most_(static_cast<float>((1 << (bits - 1)) - 1)) {}

  void encode(std::span<const float> x,
              LinkState& /*state*/,
              const RandomStream& random,
              std::vector<std::uint32_t>& message) const override {
    const auto n = static_cast<std::int64_t>(x.size());
    const std::size_t at = message.size();
    message.resize(at + static_cast<std::size_t>(words(n)));
    std::uint32_t* const factors = message.data() + at;
    auto* const numbers = reinterpret_cast<std::uint8_t*>(factors + parts_of(n, block_));
    std::vector<std::int8_t> whole(static_cast<std::size_t>(block_));
    std::vector<std::uint32_t> draws(static_cast<std::size_t>(at_random_ ? block_ : 0));
    for (std::int64_t b = 0; b < parts_of(n, block_); ++b) {
      const std::int64_t first = b * block_;
      const std::int64_t size = std::min(block_, n - first);
      const float* const in = x.data() + first;
      float factor = codes::greatest(in, size) / most_;
      float inverse = 1 / factor;
      if (!std::isfinite(inverse)) {  // nothing that a number could be divided by
        factor = 0;
        inverse = 0;
      }
      factors[b] = codec_parts::word_of(factor);
      std::int8_t* const out =
          bits_ == 8 ? reinterpret_cast<std::int8_t*>(numbers + first) : whole.data();
      if (at_random_) {
        for (std::int64_t i = 0; i < size; ++i) {
          draws[static_cast<std::size_t>(i)] =
              static_cast<std::uint32_t>(random.bits(static_cast<std::uint64_t>(first + i)) >> 32);
        }
        codes::to_int8_at_random(in, inverse, most_, draws.data(), out, size);
      } else {
        codes::to_int8(in, inverse, most_, out, size);
      }
      if (bits_ == 4) {
        codes::pack_int4(out, numbers + first / 2, size);
      }
    }
  }

  Result<void> read(Words message, std::int64_t n, float* out) const override {
    auto right = codec_parts::of_length(message, words(n));
    if (!right || !out) {
      return right;
    }
    const auto* const numbers =
        reinterpret_cast<const std::uint8_t*>(message.data() + parts_of(n, block_));
    for (std::int64_t b = 0; b < parts_of(n, block_); ++b) {
      const std::int64_t first = b * block_;
      const std::int64_t size = std::min(block_, n - first);
      const float factor = codec_parts::float_of_word(message[static_cast<std::size_t>(b)]);
      if (bits_ == 8) {
        codes::from_int8(
            reinterpret_cast<const std::int8_t*>(numbers + first), factor, out + first, size);
      } else {
        codes::from_int4(numbers + first / 2, factor, out + first, size);
      }
    }
    return {};
  }

  std::optional<MessageCode> code(const RandomStream& random) const override {
    MessageCode made{.kind = bits_ == 8 ? CodeKind::int8 : CodeKind::int4, .block = block_};
    if (at_random_) {
      made.random = random;
    }
    return made;
  }

 private:
  std::int64_t words(std::int64_t n) const { return parts_of(n, block_) + parts_of(n, 32 / bits_); }

  std::int64_t block_;
  bool at_random_;
  int bits_;
  float most_;
};

const proto::BlockCodec& options_of(const proto::Codec& chosen) {
  return chosen.has_int8_block() ? chosen.int8_block() : chosen.int4_block();
}

/// What is rounded at random is right in the mean.
bool rounds_to_nearest(const proto::Codec& chosen) {
  return options_of(chosen).rounding() == proto::BlockCodec::nearest;
}

CodecScheme block_scheme(int bits) {
  const std::string most = bits == 8 ? "127" : "7";
  return {.info = {.name = bits == 8 ? "int8_block" : "int4_block",
                   .summary = concat("whole numbers of ",
                                     bits,
                                     " bits times a factor for each block; block is rounded down "
                                     "to a multiple of 8"),
                   .paper = "int4: Douillard et al. 2025, arXiv:2501.18512, outer gradients"},
          .equations = concat("s = max |x| / ", most, " in a block; c = s round(x / s)"),
          .bytes = bits == 8 ? "n + 4 n / block" : "n / 2 + 4 n / block",
          .forgets = "up to s / 2 of a number; stochastic: up to s",
          .codec =
              [bits](const CodecContext& c) {
                return std::make_unique<Blocks>(options_of(c.chosen), bits);
              },
          .keeps = rounds_to_nearest,
          .whole = bits == 8};
}

}  // namespace

namespace codec_schemes {

CodecScheme int8_block() {
  return block_scheme(8);
}

CodecScheme int4_block() {
  return block_scheme(4);
}

}  // namespace codec_schemes

}  // namespace troupe
