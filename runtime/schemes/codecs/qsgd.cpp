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

/// The norms of the buckets, then level and sign of each number; recursive: of each that is not 0, behind how far it is
/// from the last such one (the paper's Code_s).
class QsgdCodec final : public Codec {
 public:
  explicit QsgdCodec(const proto::Qsgd& options)
      : levels_(static_cast<std::uint32_t>(options.levels())),
        bucket_(options.bucket()),
        coding_(options.coding()),
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
    std::int64_t last = -1;  // number that is not 0
    for (std::int64_t i = 0; i < n; ++i) {
      const float v = x[static_cast<std::size_t>(i)];
      const float norm = norms[static_cast<std::size_t>(i / bucket_)];
      const float share = norm > 0 ? std::abs(v) / norm : 0.0f;  // at most 1, to rounding
      const float drawn_level =
          std::floor(static_cast<float>(levels_) * share + codec_parts::drawn(random, i));
      const std::uint32_t level = std::min(static_cast<std::uint32_t>(drawn_level), levels_);
      if (coding_ != proto::Qsgd::recursive) {
        put(bits, level, std::signbit(v));
      } else if (level > 0) {
        bits.recursive(static_cast<std::uint32_t>(i - last));
        bits.put(std::signbit(v) ? 1 : 0, 1);
        bits.recursive(level);
        last = i;
      }
    }
    coding_ == proto::Qsgd::recursive ? bits.end_with_ones() : bits.end();
  }

  Result<void> read(Words message, std::int64_t n, float* out) const override {
    const auto buckets = static_cast<std::size_t>(parts_of(n, bucket_));
    if (message.size() < buckets) {
      return codec_parts::malformed("it has not all norms");
    }
    BitReader bits(message.subspan(buckets));
    if (coding_ == proto::Qsgd::recursive) {
      return read_gaps(message, bits, n, out);
    }
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint32_t level = get(bits);
      const bool negative = level > 0 && bits.get(1) != 0;
      if (!bits.sound() || level > levels_) {
        return codec_parts::malformed(
            "it ends within a number, or has a level that does not exist");
      }
      if (out) {
        out[i] = number(message, i, level, negative);
      }
    }
    if (!bits.at_end()) {
      return codec_parts::malformed("it is longer than its numbers");
    }
    return {};
  }

 private:
  Result<void> read_gaps(Words message, BitReader bits, std::int64_t n, float* out) const {
    if (out) {
      std::fill_n(out, n, 0.0f);
    }
    std::int64_t i = -1;
    while (!bits.at_end_of_ones()) {
      const std::uint32_t gap = bits.recursive();
      const bool negative = bits.get(1) != 0;
      const std::uint32_t level = bits.recursive();
      i += gap;
      if (!bits.sound() || gap == 0 || i >= n || level == 0 || level > levels_) {
        return codec_parts::malformed(
            "it ends within a number, or has a place or a level that does not exist");
      }
      if (out) {
        out[i] = number(message, i, level, negative);
      }
    }
    return {};
  }

  /// Number i of a message.
  float number(Words message, std::int64_t i, std::uint32_t level, bool negative) const {
    const float norm = codec_parts::float_of_word(message[static_cast<std::size_t>(i / bucket_)]);
    const float v = norm * (static_cast<float>(level) / static_cast<float>(levels_));
    return negative ? -v : v;
  }

  /// Elias' gamma code of level + 1: as many zeros as it has bits behind its first, then its bits.
  void put(BitWriter& bits, std::uint32_t level, bool negative) const {
    if (coding_ == proto::Qsgd::elias) {
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
    if (coding_ == proto::Qsgd::fixed) {
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
  proto::Qsgd::Coding coding_;
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
          "4 n / bucket and, fixed, at most n (log2(s) + 2) / 8; elias: fewer where levels "
          "are low; recursive: fewer where most are 0, a bit and two omega codes for each other",
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
