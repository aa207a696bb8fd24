// qsgd: levels of each bucket's norm, rounded at random. Alistarh, Grubic, Li, Tomioka & Vojnovic, NIPS
// 2017, arXiv:1610.02132.
#include "kernels/codes.hpp"
#include "runtime/schemes/codecs/parts.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace troupe {
namespace {

using codec_parts::BitReader;
using codec_parts::BitWriter;
using codec_parts::kChunk;
using codec_parts::parts_of;

/// The code of a level and its sign: the bits and how many they are.
struct LevelCode {
  std::uint32_t bits = 0;
  int count = 0;
};

/// Elias' gamma code of level + 1, as many zeros as it has bits behind its first, then its bits; or as many bits as the greatest
/// level has. Behind a level that is not 0: its sign.
class LevelCoding {
 public:
  LevelCoding(bool elias, std::uint32_t levels)
      : elias_(elias), levels_(levels), width_(std::bit_width(levels)) {
    for (std::uint32_t index = 0; small() && index < fours_.size(); ++index) {
      for (int place = 0; place < 4; ++place) {
        const int level = static_cast<int>(index >> (3 * place) & 7u) - kMiddle;
        const LevelCode one = code(level);
        fours_[index].bits |= one.bits << fours_[index].count;
        fours_[index].count += one.count;
      }
    }
    for (std::uint32_t bits = 0; levels_ <= kNarrowMost && bits < read_.size(); ++bits) {
      read_[bits] = first_of(bits);
    }
  }

  /// Of a level with a sign, at most `levels` in magnitude.
  LevelCode code(int signed_level) const {
    const auto level = static_cast<std::uint32_t>(std::abs(signed_level));
    LevelCode made{level, width_};
    if (elias_) {
      const int behind = std::bit_width(level + 1) - 1;
      // The ones above the lowest `behind` bits of level + 1 are its first: the code's last zero's neighbour.
      made = {1u << behind | ((level + 1) & ((1u << behind) - 1)) << (behind + 1), 2 * behind + 1};
    }
    if (level > 0) {
      made.bits |= (signed_level < 0 ? 1u : 0u) << made.count;
      ++made.count;
    }
    return made;
  }

  void write(BitWriter& bits, const std::int16_t* levels, std::int64_t n) const {
    bits.put_many(n, [&](auto put) {
      std::int64_t i = 0;
      for (; small() && i + 4 <= n; i += 4) {
        std::uint64_t four;
        std::memcpy(&four, levels + i, sizeof four);
        // kMiddle is added to each of four numbers of 16 bits.
        constexpr std::uint64_t kTops = 0x8000800080008000u;
        four = ((four & ~kTops) + kMiddle * 0x0001000100010001u) ^ (four & kTops);
        if ((four & 0xfff8fff8fff8fff8u) == 0) {
          const LevelCode& all = fours_[(four | four >> 13 | four >> 26 | four >> 39) & 0xfffu];
          put(all.bits, all.count);
          continue;
        }
        for (std::int64_t k = i; k < i + 4; ++k) {
          const LevelCode one = code(levels[k]);
          put(one.bits, one.count);
        }
      }
      for (; i < n; ++i) {
        const LevelCode one = code(levels[i]);
        put(one.bits, one.count);
      }
    });
  }

  /// Reads levels up to `n` of them, for as long as there are many and they are short. How many they were.
  std::int64_t read(BitReader& reader, std::int8_t* levels, std::int64_t n) const {
    BitReader bits = reader;  // in registers: to the compiler, `levels` might lie in the reader
    std::int64_t i = 0;
    while (levels_ <= kNarrowMost && n - i >= 2 * kReadMost && bits.has_window()) {
      const std::uint64_t window = bits.window();
      const ReadLevels& some = read_[window & (read_.size() - 1)];
      const ReadLevels& more = read_[window >> some.bits & (read_.size() - 1)];
      std::memcpy(levels + i, some.levels.data(), kReadMost);
      std::memcpy(levels + i + some.count, more.levels.data(), kReadMost);
      i += some.count + more.count;
      bits.skip(some.bits + more.bits);
      if (some.count == 0 || more.count == 0) {
        break;
      }
    }
    reader = bits;
    return i;
  }

 private:
  static constexpr int kMiddle = 3;     // levels of -3 to 4 have a place in fours_
  static constexpr int kReadMost = 8;   // numbers of one entry of read_
  static constexpr int kReadBits = 12;  // that decide which entry
  static constexpr std::uint32_t kNarrowMost = 127;

  struct ReadLevels {
    std::array<std::int8_t, kReadMost> levels{};
    std::int8_t count = 0;
    std::int8_t bits = 0;
  };

  /// The levels that `bits` begin with.
  ReadLevels first_of(std::uint32_t bits) const {
    ReadLevels all;
    while (all.count < kReadMost) {
      const int left = kReadBits - all.bits;
      const std::uint32_t rest = bits >> all.bits;
      const int zeros = std::countr_zero(rest | 1u << left);
      const int size = elias_ ? 2 * zeros + 1 : width_;
      if (size > left) {
        break;
      }
      const std::uint32_t lower = (1u << zeros) - 1;
      const std::uint32_t level =
          elias_ ? ((lower + 1) | (rest >> (zeros + 1) & lower)) - 1 : rest & ((1u << width_) - 1);
      const int sign = level > 0 ? 1 : 0;
      if (size + sign > left || level > levels_) {
        break;
      }
      const bool negative = sign != 0 && (rest >> size & 1u) != 0;
      all.levels[static_cast<std::size_t>(all.count)] =
          static_cast<std::int8_t>(negative ? -static_cast<int>(level) : static_cast<int>(level));
      ++all.count;
      all.bits = static_cast<std::int8_t>(all.bits + size + sign);
    }
    return all;
  }

  /// Whether four codes of fours_ are at most 32 bits.
  bool small() const { return elias_ || width_ < 8; }

  bool elias_;
  std::uint32_t levels_;
  int width_;
  std::array<LevelCode, 4096> fours_{};  // by level + kMiddle of four numbers, 3 bits each
  std::array<ReadLevels, 1 << kReadBits> read_{};
};

/// The norms of the buckets, then level and sign of each number; recursive: of each that is not 0, behind how far it is
/// from the last such one (the paper's Code_s).
class QsgdCodec final : public Codec {
 public:
  explicit QsgdCodec(const proto::Qsgd& options)
      : levels_(static_cast<std::uint32_t>(options.levels())),
        bucket_(options.bucket()),
        coding_(options.coding()),
        width_(std::bit_width(levels_)),
        codes_(coding_ == proto::Qsgd::elias, levels_) {}

  void encode(std::span<const float> x,
              LinkState& /*state*/,
              const RandomStream& random,
              std::vector<std::uint32_t>& message) const override {
    const auto n = static_cast<std::int64_t>(x.size());
    const std::size_t norms = message.size();
    message.resize(norms + static_cast<std::size_t>(parts_of(n, bucket_)));
    BitWriter bits(message);
    std::array<std::uint32_t, kChunk> draws;
    std::array<std::int16_t, kChunk> levels;
    std::int64_t last = -1;  // number that is not 0
    for (std::int64_t first = 0; first < n; first += bucket_) {
      const std::int64_t end = std::min(first + bucket_, n);
      const double squares = codes::sum_of_squares(x.data() + first, end - first);
      // At least the greatest magnitude, which is all that makes the mean right.
      const auto norm = static_cast<float>(
          std::min<double>(std::sqrt(squares), std::numeric_limits<float>::max()));
      message[norms + static_cast<std::size_t>(first / bucket_)] = codec_parts::word_of(norm);
      for (std::int64_t at = first; at < end; at += kChunk) {
        const std::int64_t size = std::min(kChunk, end - at);
        codes::draw(random, at, draws.data(), size);
        codes::to_levels(
            x.data() + at, norm, static_cast<float>(levels_), draws.data(), levels.data(), size);
        if (coding_ == proto::Qsgd::recursive) {
          write_gaps(bits, levels.data(), at, size, last);
        } else {
          codes_.write(bits, levels.data(), size);
        }
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
    std::array<std::int8_t, kChunk> levels;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t some = codes_.read(bits, levels.data(), std::min(kChunk, n - i));
      if (out) {
        put_numbers(message, levels.data(), i, some, out);
      }
      i += some;
      if (i == n) {
        break;
      }
      const std::uint32_t level = get(bits);  // one that is long, or near the end
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

  void write_gaps(BitWriter& bits,
                  const std::int16_t* levels,
                  std::int64_t first,
                  std::int64_t n,
                  std::int64_t& last) const {
    for (std::int64_t i = 0; i < n; ++i) {
      if (levels[i] != 0) {
        bits.recursive(static_cast<std::uint32_t>(first + i - last));
        bits.put(levels[i] < 0 ? 1 : 0, 1);
        bits.recursive(static_cast<std::uint32_t>(std::abs(levels[i])));
        last = first + i;
      }
    }
  }

  /// Numbers first .. first + n of a message.
  void put_numbers(Words message,
                   const std::int8_t* levels,
                   std::int64_t first,
                   std::int64_t n,
                   float* out) const {
    for (std::int64_t i = first; i < first + n;) {
      const std::int64_t end = std::min(first + n, (i / bucket_ + 1) * bucket_);
      const float norm = codec_parts::float_of_word(message[static_cast<std::size_t>(i / bucket_)]);
      codes::from_levels(levels + (i - first), norm, static_cast<float>(levels_), out + i, end - i);
      i = end;
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
  LevelCoding codes_;
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
