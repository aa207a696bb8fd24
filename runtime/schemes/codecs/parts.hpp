// What codecs are made of: bits, places, parts of a slice. Private to runtime/schemes/codecs.
#pragma once

#include "experiment/codecs.pb.h"
#include "runtime/schemes/codecs/built_in.hpp"

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace troupe::codec_parts {

inline std::uint32_t word_of(float x) {
  return std::bit_cast<std::uint32_t>(x);
}

inline float float_of_word(std::uint32_t word) {
  return std::bit_cast<float>(word);
}

/// Numbers that are drawn for and coded at a time, so that draws and codes stay in the first-level cache.
constexpr std::int64_t kChunk = 1024;

/// (n + per - 1) / per
constexpr std::int64_t parts_of(std::int64_t n, std::int64_t per) {
  return n / per + (n % per != 0 ? 1 : 0);
}

/// The error of a message that is not what its codec makes: a sentence's end.
Error malformed(const std::string& why);

/// Error where the message has another length.
Result<void> of_length(Words message, std::int64_t words);

/// Writes bits behind a message, the first in the lowest bit of a word.
class BitWriter {
 public:
  explicit BitWriter(std::vector<std::uint32_t>& message) : message_(message) {}

  /// The lowest `count` <= 32 bits.
  void put(std::uint32_t bits, int count) {
    held_ |= (bits & ((std::uint64_t{1} << count) - 1)) << bits_;
    bits_ += count;
    if (bits_ >= 32) {
      message_.push_back(static_cast<std::uint32_t>(held_));
      held_ >>= 32;
      bits_ -= 32;
    }
  }

  /// Calls f(put_one), whose put_one(bits, count) may be called `most` times; there is nothing above the lowest `count` bits.
  /// It does as put() does without asking whether a word is full, which no processor guesses right.
  template <class F>
  void put_many(std::int64_t most, F&& f) {
    const std::size_t before = message_.size();
    message_.resize(before + static_cast<std::size_t>(most) + 1);
    std::uint32_t* word = message_.data() + before;
    std::uint64_t held = held_;
    int held_bits = bits_;
    f([&](std::uint32_t bits, int count) {
      held |= std::uint64_t{bits} << held_bits;
      held_bits += count;
      *word = static_cast<std::uint32_t>(held);
      const int full = held_bits / 32;  // words: 0 or 1
      word += full;
      held >>= 32 * full;
      held_bits %= 32;
    });
    message_.resize(static_cast<std::size_t>(word - message_.data()));
    held_ = held;
    bits_ = held_bits;
  }

  /// `count` zeros.
  void zeros(std::uint64_t count);
  /// Elias' recursive (omega) code of x >= 1: behind the number of bits that follow the first of a number, in the same
  /// code, that number, the highest bit first; and a zero. Elias 1975, IEEE Trans. Inf. Theory 21(2).
  void recursive(std::uint32_t x);
  /// The last word is full.
  void end();
  /// The same, with ones. No recursive code has begun there: one has a zero at its end.
  void end_with_ones();

 private:
  void prefixed(std::uint32_t x);

  std::vector<std::uint32_t>& message_;
  std::uint64_t held_ = 0;
  int bits_ = 0;
};

/// Reads them. Behind the end there are zeros, and ended() says so.
class BitReader {
 public:
  explicit BitReader(Words words) : words_(words) {}

  std::uint32_t get(int count);
  /// Zeros up to the next one, which is read too; more than `most`: most + 1.
  std::uint64_t zeros(std::uint64_t most);

  /// The next 32 bits, or more, where there are 64 left; skip() takes some of them.
  bool has_window() const { return at_ + 64 <= bits(); }

  std::uint64_t window() const {
    std::uint64_t two;
    std::memcpy(&two, words_.data() + at_ / 32, sizeof two);  // x86-64 and arm64 are little-endian
    return two >> (at_ % 32);
  }

  void skip(int count) { at_ += static_cast<std::uint64_t>(count); }

  /// What recursive() has written; 0 where that has more than 32 bits.
  std::uint32_t recursive();

  /// Everything that was read was there.
  bool sound() const { return at_ <= bits(); }

  /// Nothing is left but the rest of a word.
  bool at_end() const { return sound() && bits() - at_ < 32; }

  /// Nothing is left but the rest of a word, which is of ones.
  bool at_end_of_ones() const;

 private:
  std::uint64_t bits() const { return 32 * static_cast<std::uint64_t>(words_.size()); }

  Words words_;
  std::uint64_t at_ = 0;
};

/// Places in ascending order, 31 bits each, with a sign above.
using Places = std::vector<std::uint32_t>;

constexpr std::uint32_t kPlace = 0x7fffffffu;

/// Appends them. `signs`: the sign of each, too. `n`: what they are places among.
void write_places(const Places& places,
                  bool signs,
                  proto::PlaceCoding coding,
                  std::int64_t n,
                  std::vector<std::uint32_t>& message);

/// `count` of them, which are all of `from`. Error where they are not in order or not below n.
Result<Places> read_places(
    Words from, std::uint32_t count, bool signs, proto::PlaceCoding coding, std::int64_t n);

/// Appends the places of the k greatest magnitudes among x, each plus `offset`, in ascending order; of
/// equal ones the first.
void greatest_places(std::span<const float> x, std::int64_t k, std::int64_t offset, Places& places);

/// Numbers to send of n: the share, rounded, but at least one.
std::int64_t count_of(double density, std::int64_t n);

/// Numbers [offset, offset + size) of a slice: `rows` rows of the same length.
struct Section {
  std::int64_t offset = 0;
  std::int64_t size = 0;
  std::int64_t rows = 1;
};

/// The tensors of a slice, what lies between them with the one before it; together [0, n). `rows`: of
/// tensors of two dimensions or more, those of their first.
std::vector<Section> sections(const CodecContext& context);

/// The whole slice as one, or `sections`.
std::vector<Section> sections(const CodecContext& context, proto::CodecPer per);

}  // namespace troupe::codec_parts
