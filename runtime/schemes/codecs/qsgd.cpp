// qsgd: levels of each bucket's norm, rounded at random. Alistarh, Grubic, Li, Tomioka & Vojnovic, NIPS
// 2017, arXiv:1610.02132.
#include "kernels/codes.hpp"
#include "runtime/schemes/codecs/parts.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace troupe {
namespace {

using codec_parts::BitReader;
using codec_parts::BitWriter;
using codec_parts::parts_of;

/// The norms of the buckets, then level and sign of each number.
class QsgdCodec final : public Codec {
 public:
  explicit QsgdCodec(const proto::Qsgd& options)
      : levels_(static_cast<std::uint32_t>(options.levels())),
        bucket_(options.bucket()),
        elias_(options.coding() == proto::Qsgd::elias),
        width_(std::bit_width(levels_)) {}

  void encode(std::span<const float> x,
              LinkState& /*state*/,
              const RandomStream& random,
              std::vector<std::uint32_t>& message) const override {
    const auto n = static_cast<std::int64_t>(x.size());
    std::vector<float> norms;
    for (std::int64_t first = 0; first < n; first += bucket_) {
      const double squares = codes::sum_of_squares(x.data() + first, std::min(bucket_, n - first));
      // At least the greatest magnitude, which is all that makes the mean right.
      norms.push_back(static_cast<float>(
          std::min<double>(std::sqrt(squares), std::numeric_limits<float>::max())));
      message.push_back(codec_parts::word_of(norms.back()));
    }
    BitWriter bits(message);
    for (std::int64_t i = 0; i < n; ++i) {
      const float v = x[static_cast<std::size_t>(i)];
      const float norm = norms[static_cast<std::size_t>(i / bucket_)];
      const float share = norm > 0 ? std::abs(v) / norm : 0.0f;  // at most 1, to rounding
      const float level = std::floor(static_cast<float>(levels_) * share + drawn(random, i));
      put(bits, std::min(static_cast<std::uint32_t>(level), levels_), std::signbit(v));
    }
    bits.end();
  }

  Result<void> read(Words message, std::int64_t n, float* out) const override {
    const auto buckets = static_cast<std::size_t>(parts_of(n, bucket_));
    if (message.size() < buckets) {
      return codec_parts::malformed("it has not all norms");
    }
    BitReader bits(message.subspan(buckets));
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint32_t level = get(bits);
      const bool negative = level > 0 && bits.get(1) != 0;
      if (!bits.sound() || level > levels_) {
        return codec_parts::malformed("it ends within a number, or has a level that is none");
      }
      if (out) {
        const float norm =
            codec_parts::float_of_word(message[static_cast<std::size_t>(i / bucket_)]);
        const float v = norm * (static_cast<float>(level) / static_cast<float>(levels_));
        out[i] = negative ? -v : v;
      }
    }
    if (!bits.at_end()) {
      return codec_parts::malformed("it is longer than its numbers");
    }
    return {};
  }

 private:
  static float drawn(const RandomStream& random, std::int64_t i) {
    return codec_parts::drawn(random, i);
  }

  /// Elias' gamma code of level + 1: as many zeros as it has bits behind its first, then its bits.
  void put(BitWriter& bits, std::uint32_t level, bool negative) const {
    if (elias_) {
      const int behind = std::bit_width(level + 1) - 1;
      bits.put(1u << behind, behind + 1);
      bits.put(level + 1, behind);
    } else {
      bits.put(level, width_);
    }
    if (level > 0) {
      bits.put(negative ? 1 : 0, 1);
    }
  }

  std::uint32_t get(BitReader& bits) const {
    if (!elias_) {
      return bits.get(width_);
    }
    constexpr std::uint64_t kMost = 16;
    const std::uint64_t behind = bits.zeros(kMost);
    if (behind > kMost) {
      return levels_ + 1;
    }
    return ((1u << behind) | bits.get(static_cast<int>(behind))) - 1;
  }

  std::uint32_t levels_;
  std::int64_t bucket_;
  bool elias_;
  int width_;
};

}  // namespace

namespace codec_schemes {

CodecScheme qsgd() {
  return {
      .info = {.name = "qsgd",
               .summary = "levels of each bucket's norm, rounded at random without bias; what it "
                          "leaves out can be greater than what it codes, so that feedback is off",
               .paper = "Alistarh, Grubic, Li, Tomioka & Vojnovic, NIPS 2017, arXiv:1610.02132"},
      .equations = "c_j = |x| sign(x_j) l_j / s, l_j = s |x_j| / |x| rounded up or down at random",
      .bytes =
          "4 n / bucket and, fixed, at most n (log2(s) + 2) / 8; elias: fewer where levels are low",
      .forgets =
          "nothing in the mean; variance up to min(b / s^2, sqrt(b) / s) |x|^2 a bucket of b",
      .codec = [](const CodecContext& c) { return std::make_unique<QsgdCodec>(c.chosen.qsgd()); },
      .keeps = [](const proto::Codec&) { return false; },
      .expands =
          [](const proto::Codec& chosen) {
            const auto s = static_cast<double>(chosen.qsgd().levels());
            return s * s <= static_cast<double>(chosen.qsgd().bucket());
          }};
}

}  // namespace codec_schemes

}  // namespace troupe
