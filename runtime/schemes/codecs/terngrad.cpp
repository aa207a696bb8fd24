// terngrad: -1, 0 or 1 times the greatest number. Wen, Xu, Yan, Wu, Wang, Chen & Li, NIPS 2017,
// arXiv:1705.07878.
#include "kernels/codes.hpp"
#include "runtime/schemes/codecs/parts.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace troupe {
namespace {

using codec_parts::kChunk;
using codec_parts::parts_of;
using codec_parts::Section;

constexpr std::int64_t kPerWord = 16;

/// The greatest number of each tensor, then two bits a number: 0, 1 for +, 2 for -.
class TerngradCodec final : public Codec {
 public:
  explicit TerngradCodec(const CodecContext& context)
      : clip_(context.chosen.terngrad().clip()),
        sections_(codec_parts::sections(context, context.chosen.terngrad().per())) {}

  void encode(std::span<const float> x,
              LinkState& /*state*/,
              const RandomStream& random,
              std::vector<std::uint32_t>& message) const override {
    const std::size_t at = message.size() + sections_.size();
    const auto n = static_cast<std::int64_t>(x.size());
    message.resize(at + static_cast<std::size_t>(parts_of(n, kPerWord)));
    std::uint32_t* scale = message.data() + (at - sections_.size());
    std::array<std::uint32_t, kChunk> draws;
    std::array<std::uint8_t, kChunk> signs{};
    for (const Section& section : sections_) {
      const float* const part = x.data() + section.offset;
      const codes::Moments moments = codes::moments(part, section.size);
      const float bound = bound_of(moments, section.size);
      const float most = std::min(bound, moments.greatest);
      *scale++ = codec_parts::word_of(most);
      for (std::int64_t done = 0; done < section.size;) {
        // Up to a multiple of kChunk: but for a section's first and last, whole words.
        const std::int64_t first = section.offset + done;
        const std::int64_t size = std::min(section.size - done, kChunk - first % kChunk);
        codes::draw(random, first, draws.data(), size);
        codes::to_signs_at_random(part + done, bound, most, draws.data(), signs.data(), size);
        put(signs.data(), first, size, message.data() + at);
        done += size;
      }
    }
  }

  Result<void> read(Words message, std::int64_t n, float* out) const override {
    const auto scales = static_cast<std::int64_t>(sections_.size());
    TROUPE_TRY(codec_parts::of_length(message, scales + parts_of(n, kPerWord)));
    const Words codes_of = message.subspan(static_cast<std::size_t>(scales));
    if (std::ranges::any_of(
            codes_of, [](std::uint32_t word) { return (word & (word >> 1) & 0x55555555u) != 0; })) {
      return codec_parts::malformed("a number is both positive and negative");
    }
    for (std::size_t s = 0; out && s < sections_.size(); ++s) {
      const float most = codec_parts::float_of_word(message[s]);
      const float values[] = {0, most, -most, 0};
      const auto one = [&](std::int64_t i) {
        const std::uint32_t word = codes_of[static_cast<std::size_t>(i / kPerWord)];
        out[i] = values[(word >> (2 * (i % kPerWord))) & 3u];
      };
      const std::int64_t end = sections_[s].offset + sections_[s].size;
      std::int64_t i = sections_[s].offset;
      for (; i < end && i % kPerWord != 0; ++i) {
        one(i);
      }
      const std::int64_t whole = (end - i) / kPerWord;
      codes::from_int2(codes_of.data() + i / kPerWord, most, out + i, whole);
      for (i += whole * kPerWord; i < end; ++i) {
        one(i);
      }
    }
    return {};
  }

 private:
  /// The signs of numbers first .. first + n, two bits each; of those around them there may be some already.
  static void put(const std::uint8_t* signs,
                  std::int64_t first,
                  std::int64_t n,
                  std::uint32_t* words) {
    const auto one = [&](std::int64_t i) {
      words[(first + i) / kPerWord] |= std::uint32_t{signs[i]} << (2 * ((first + i) % kPerWord));
    };
    std::int64_t i = 0;
    for (; i < n && (first + i) % kPerWord != 0; ++i) {
      one(i);
    }
    const std::int64_t whole = (n - i) / kPerWord;
    codes::pack_int2(signs + i, words + (first + i) / kPerWord, whole);
    for (i += whole * kPerWord; i < n; ++i) {
      one(i);
    }
  }

  /// So many standard deviations; of numbers that are all the same, none is too great.
  float bound_of(const codes::Moments& of, std::int64_t n) const {
    const double mean = of.sum / static_cast<double>(std::max<std::int64_t>(1, n));
    const double square = of.squares / static_cast<double>(std::max<std::int64_t>(1, n));
    const double variance = square - mean * mean;
    // Below this it is what rounding has left of a difference.
    if (clip_ == 0 || !(variance > 1e-12 * square)) {
      return std::numeric_limits<float>::infinity();
    }
    const double bound = clip_ * std::sqrt(variance);
    return bound < std::numeric_limits<float>::max() ? static_cast<float>(bound)
                                                     : std::numeric_limits<float>::infinity();
  }

  double clip_;
  std::vector<Section> sections_;
};

}  // namespace

namespace codec_schemes {

CodecScheme terngrad() {
  return {
      .info = {.name = "terngrad",
               .summary = "-1, 0 or 1 times the greatest number, at random without bias but for "
                          "clipping; what it leaves out is greater than what it codes, so that "
                          "feedback is off",
               .paper = "Wen, Xu, Yan, Wu, Wang, Chen & Li, NIPS 2017, arXiv:1705.07878, without "
                        "its scaler sharing: each replica has a scale of its own, where the "
                        "paper's all have the greatest of these"},
      .equations =
          "s = max |x|; c_j = s sign(x_j) with probability |x_j| / s, else 0; |x_j| at most "
          "clip sigma",
      .bytes = "n / 4 + 4 for each tensor, or slice",
      .forgets = "nothing in the mean, but what clipping cuts off",
      .codec = [](const CodecContext& c) { return std::make_unique<TerngradCodec>(c); },
      .keeps = [](const proto::Codec&) { return false; },
      .expands =
          [](const proto::Codec&) {
            return true;
          }};
}

}  // namespace codec_schemes

}  // namespace troupe
