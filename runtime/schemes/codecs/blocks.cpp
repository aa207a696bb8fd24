// int8_block, int4_block, e3m0: whole numbers, or powers of two, times a factor for each block.
#include "kernels/codes.hpp"
#include "runtime/schemes/codecs/parts.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {
namespace {

using codec_parts::parts_of;

enum class Form : std::uint8_t { int8, int4, e3m0 };

/// The greatest number of a form.
float most_of(Form form) {
  constexpr float kE3m0 = 16;
  return form == Form::int8 ? 127.0f : form == Form::int4 ? 7.0f : kE3m0;
}

/// The factors of the blocks, then the numbers. Blocks are of a multiple of 8 numbers.
class Blocks final : public Codec {
 public:
  Blocks(const proto::BlockCodec& options, Form form)
      : block_(options.block() / 8 * 8),
        at_random_(options.rounding() == proto::BlockCodec::stochastic),
        form_(form),
        most_(most_of(form)) {}

  void encode(std::span<const float> x,
              LinkState& /*state*/,
              const RandomStream& random,
              std::vector<std::uint32_t>& message) const override {
    const auto n = static_cast<std::int64_t>(x.size());
    const std::size_t at = message.size();
    message.resize(at + static_cast<std::size_t>(words(n)));
    std::uint32_t* const factors = message.data() + at;
    auto* const numbers = reinterpret_cast<std::uint8_t*>(factors + parts_of(n, block_));
    std::vector<std::int8_t> narrow(static_cast<std::size_t>(block_));
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
          form_ == Form::int8 ? reinterpret_cast<std::int8_t*>(numbers + first) : narrow.data();
      if (at_random_) {
        codes::draw(random, first, draws.data(), size);
      }
      round(in, inverse, draws.data(), out, size);
      if (form_ != Form::int8) {
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
      switch (form_) {
        case Form::int8:
          codes::from_int8(
              reinterpret_cast<const std::int8_t*>(numbers + first), factor, out + first, size);
          break;
        case Form::int4:
          codes::from_int4(numbers + first / 2, factor, out + first, size);
          break;
        case Form::e3m0:
          codes::from_e3m0(numbers + first / 2, factor, out + first, size);
          break;
      }
    }
    return {};
  }

  std::optional<MessageCode> code(const RandomStream& random) const override {
    if (form_ == Form::e3m0) {
      return {};
    }
    MessageCode made{.kind = form_ == Form::int8 ? CodeKind::int8 : CodeKind::int4,
                     .block = block_};
    if (at_random_) {
      made.random = random;
    }
    return made;
  }

 private:
  std::int64_t words(std::int64_t n) const {
    return parts_of(n, block_) + parts_of(n, form_ == Form::int8 ? 4 : 8);
  }

  void round(const float* x,
             float inverse,
             const std::uint32_t* draws,
             std::int8_t* out,
             std::int64_t n) const {
    if (form_ == Form::e3m0) {
      at_random_ ? codes::to_e3m0_at_random(x, inverse, draws, out, n)
                 : codes::to_e3m0(x, inverse, out, n);
    } else {
      at_random_ ? codes::to_int8_at_random(x, inverse, most_, draws, out, n)
                 : codes::to_int8(x, inverse, most_, out, n);
    }
  }

  std::int64_t block_;
  bool at_random_;
  Form form_;
  float most_;
};

const proto::BlockCodec& options_of(const proto::Codec& chosen) {
  return chosen.has_int8_block()   ? chosen.int8_block()
         : chosen.has_int4_block() ? chosen.int4_block()
                                   : chosen.e3m0();
}

/// What is rounded at random is right in the mean.
bool rounds_to_nearest(const proto::Codec& chosen) {
  return options_of(chosen).rounding() == proto::BlockCodec::nearest;
}

CodecScheme block_scheme(Form form, CodecScheme scheme) {
  scheme.info.summary += " times a factor for each block; block is rounded down to a multiple of 8";
  scheme.codec = [form](const CodecContext& c) {
    return std::make_unique<Blocks>(options_of(c.chosen), form);
  };
  scheme.keeps = rounds_to_nearest;
  return scheme;
}

}  // namespace

namespace codec_schemes {

CodecScheme int8_block() {
  return block_scheme(Form::int8,
                      {.info = {.name = "int8_block", .summary = "whole numbers of 8 bits"},
                       .equations = "s = max |x| / 127 in a block; c = s round(x / s)",
                       .bytes = "n + 4 n / block",
                       .forgets = "up to s / 2 of a number; stochastic: up to s",
                       .whole = true});
}

CodecScheme int4_block() {
  return block_scheme(Form::int4,
                      {.info = {.name = "int4_block", .summary = "whole numbers of 4 bits"},
                       .equations = "s = max |x| / 7 in a block; c = s round(x / s)",
                       .bytes = "n / 2 + 4 n / block",
                       .forgets = "up to s / 2 of a number; stochastic: up to s"});
}

CodecScheme e3m0() {
  return block_scheme(
      Form::e3m0,
      {.info = {.name = "e3m0",
                .summary = "4 bits a number, a sign and an exponent of 3 bits: 0 and seven powers "
                           "of two, of both signs,",
                .paper = "Douillard et al. 2025, arXiv:2501.18512, outer gradients; the factor is "
                         "ours"},
       .equations = "s = max |x| / 16 in a block; c = s q, q the nearest to x / s of 0, 1/4, 1/2, "
                    "1, 2, 4, 8, 16 and their negatives",
       .bytes = "n / 2 + 4 n / block",
       .forgets = "up to a third of a number, and up to s / 8 of one below s / 4; stochastic: up "
                  "to as much as the number, and up to s / 4"});
}

}  // namespace codec_schemes

}  // namespace troupe
