#include "runtime/schemes/codecs/parts.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::codec_parts {
namespace {

/// Below so many numbers counting them by their upper bits costs more than it saves.
constexpr std::int64_t kFew = 1 << 15;
constexpr int kRiceMost = 31;

std::uint32_t magnitude_bits(float x) {
  return word_of(x) & kPlace;
}

/// The k-th greatest of all, which are put in another order. 1 <= k <= their number.
std::uint32_t kth(std::vector<std::uint32_t>& all, std::int64_t k) {
  const auto at = all.begin() + (k - 1);
  std::nth_element(all.begin(), at, all.end(), std::greater<>());
  return *at;
}

/// The k-th greatest magnitude: the numbers are counted by their upper bits, and only those that share
/// the k-th one's are compared.
std::uint32_t kth_magnitude(std::span<const float> x, std::int64_t k) {
  std::vector<std::uint32_t> candidates;
  if (static_cast<std::int64_t>(x.size()) < kFew) {
    std::transform(x.begin(), x.end(), std::back_inserter(candidates), magnitude_bits);
    return kth(candidates, k);
  }
  std::vector<std::int64_t> counts(1 << 15);
  for (const float v : x) {
    ++counts[magnitude_bits(v) >> 16];
  }
  std::size_t bin = counts.size() - 1;
  while (counts[bin] < k) {
    k -= counts[bin--];
  }
  candidates.reserve(static_cast<std::size_t>(counts[bin]));
  for (const float v : x) {
    if (magnitude_bits(v) >> 16 == bin) {
      candidates.push_back(magnitude_bits(v));
    }
  }
  return kth(candidates, k);
}

/// Bits of a gap's remainder where `count` of n places are taken.
int rice_of(std::size_t count, std::int64_t n) {
  if (count == 0) {
    return 0;
  }
  const double gap = 0.69 * static_cast<double>(n) / static_cast<double>(count);
  return std::clamp(static_cast<int>(std::lround(std::log2(gap))), 0, kRiceMost);
}

Result<Places> read_golomb(Words from, std::uint32_t count, bool signs, std::int64_t n) {
  if (from.empty() || from.front() > static_cast<std::uint32_t>(kRiceMost)) {
    return malformed("the code of its places is none");
  }
  // A place takes a bit at least, so that a count which fits in no memory does not come here.
  if (count > 32 * (static_cast<std::uint64_t>(from.size()) - 1)) {
    return malformed("it announces more numbers than it has");
  }
  const int rice = static_cast<int>(from.front());
  BitReader bits(from.subspan(1));
  Places places;
  places.reserve(count);
  std::uint64_t next = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t quotient = bits.zeros(static_cast<std::uint64_t>(n) >> rice);
    const std::uint64_t place = next + (quotient << rice) + bits.get(rice);
    const std::uint32_t sign = signs ? bits.get(1) : 0;
    if (!bits.sound() || place >= static_cast<std::uint64_t>(n)) {
      return malformed("a place is not in the slice");
    }
    places.push_back(static_cast<std::uint32_t>(place) | (sign << 31));
    next = place + 1;
  }
  if (!bits.at_end()) {
    return malformed("it is longer than its numbers");
  }
  return places;
}

}  // namespace

Error malformed(const std::string& why) {
  return {ErrorKind::lost, why};
}

Result<void> of_length(Words message, std::int64_t words) {
  if (static_cast<std::int64_t>(message.size()) != words) {
    return malformed(concat("it has ", message.size(), " words where ", words, " are right"));
  }
  return {};
}

void BitWriter::zeros(std::uint64_t count) {
  for (; count > 0; count -= std::min<std::uint64_t>(count, 32)) {
    put(0, static_cast<int>(std::min<std::uint64_t>(count, 32)));
  }
}

void BitWriter::recursive(std::uint32_t x) {
  if (x > 1) {
    prefixed(x);
  }
  put(0, 1);
}

/// The code of x > 1 but for the zero.
void BitWriter::prefixed(std::uint32_t x) {
  const int behind = std::bit_width(x) - 1;
  if (behind > 1) {
    prefixed(static_cast<std::uint32_t>(behind));
  }
  for (int bit = behind; bit >= 0; --bit) {
    put(x >> bit, 1);
  }
}

void BitWriter::end_with_ones() {
  if (bits_ > 0) {
    put(~0u, 32 - bits_);
  }
}

void BitWriter::end() {
  if (bits_ > 0) {
    message_.push_back(static_cast<std::uint32_t>(held_));
  }
  held_ = 0;
  bits_ = 0;
}

std::uint32_t BitReader::get(int count) {
  std::uint64_t window = 0;
  const std::uint64_t word = at_ / 32;
  if (word < words_.size()) {
    window = words_[word];
  }
  if (word + 1 < words_.size()) {
    window |= static_cast<std::uint64_t>(words_[word + 1]) << 32;
  }
  window >>= at_ % 32;
  at_ += static_cast<std::uint64_t>(count);
  return static_cast<std::uint32_t>(count < 32 ? window & ((1ull << count) - 1) : window);
}

std::uint64_t BitReader::zeros(std::uint64_t most) {
  std::uint64_t count = 0;
  while (at_ < bits()) {
    const std::uint32_t rest = words_[at_ / 32] >> (at_ % 32);
    if (rest != 0) {
      const auto more = static_cast<std::uint64_t>(std::countr_zero(rest));
      at_ += more + 1;
      return std::min(count + more, most + 1);
    }
    const std::uint64_t left = 32 - at_ % 32;
    count += left;
    at_ += left;
    if (count > most) {
      return most + 1;
    }
  }
  at_ = bits() + 1;  // not sound: there was no one
  return count;
}

std::uint32_t BitReader::recursive() {
  std::uint32_t x = 1;
  while (get(1) != 0) {
    const std::uint32_t behind = x;
    if (behind > 31) {
      return 0;
    }
    x = 1;
    for (std::uint32_t bit = 0; bit < behind; ++bit) {
      x = x << 1 | get(1);
    }
  }
  return x;
}

bool BitReader::at_end_of_ones() const {
  if (!at_end()) {
    return false;
  }
  const auto left = static_cast<int>(bits() - at_);
  return BitReader(*this).get(left) == (1ull << left) - 1;
}

void write_places(const Places& places,
                  bool signs,
                  proto::PlaceCoding coding,
                  std::int64_t n,
                  std::vector<std::uint32_t>& message) {
  if (coding == proto::words) {
    message.insert(message.end(), places.begin(), places.end());
    return;
  }
  const int rice = rice_of(places.size(), n);
  message.push_back(static_cast<std::uint32_t>(rice));
  BitWriter bits(message);
  std::uint32_t next = 0;
  for (const std::uint32_t item : places) {
    const std::uint32_t gap = (item & kPlace) - next;
    bits.zeros(gap >> rice);
    bits.put(1, 1);
    bits.put(gap, rice);
    if (signs) {
      bits.put(item >> 31, 1);
    }
    next = (item & kPlace) + 1;
  }
  bits.end();
}

Result<Places> read_places(
    Words from, std::uint32_t count, bool signs, proto::PlaceCoding coding, std::int64_t n) {
  if (count > static_cast<std::uint64_t>(n)) {
    return malformed(concat("it announces ", count, " numbers of a slice of ", n));
  }
  if (coding == proto::golomb) {
    return read_golomb(from, count, signs, n);
  }
  TROUPE_TRY(of_length(from, count));
  std::int64_t last = -1;
  for (const std::uint32_t item : from) {
    const std::int64_t place = signs ? item & kPlace : item;
    if (place <= last || place >= n) {
      return malformed("its places are not in order, or not in the slice");
    }
    last = place;
  }
  return Places(from.begin(), from.end());
}

void greatest_places(std::span<const float> x,
                     std::int64_t k,
                     std::int64_t offset,
                     Places& places) {
  const auto n = static_cast<std::int64_t>(x.size());
  k = std::min(k, n);
  if (k == 0) {
    return;
  }
  const std::uint32_t least = kth_magnitude(x, k);
  std::int64_t above = 0;
  for (const float v : x) {
    above += magnitude_bits(v) > least ? 1 : 0;
  }
  std::int64_t equal = k - above;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t bits = magnitude_bits(x[static_cast<std::size_t>(i)]);
    if (bits > least || (bits == least && equal-- > 0)) {
      places.push_back(static_cast<std::uint32_t>(offset + i));
    }
  }
}

std::int64_t count_of(double density, std::int64_t n) {
  const auto share = static_cast<std::int64_t>(std::llround(density * static_cast<double>(n)));
  return std::clamp<std::int64_t>(share, std::min<std::int64_t>(1, n), n);
}

std::vector<Section> sections(const CodecContext& context) {
  std::vector<Section> all;
  for (const RuleContext::Part& part : context.parts) {
    const std::int64_t size = part.shape.elements();
    if (size == 0) {
      continue;
    }
    const std::int64_t behind = all.empty() ? 0 : all.back().offset + all.back().size;
    if (part.offset > behind) {
      all.push_back({behind, part.offset - behind, 1});
    }
    all.push_back({part.offset, size, part.shape.dimensions() > 1 ? part.shape[0] : 1});
  }
  const std::int64_t behind = all.empty() ? 0 : all.back().offset + all.back().size;
  if (context.elements > behind) {
    all.push_back({behind, context.elements - behind, 1});
  }
  return all;
}

std::vector<Section> sections(const CodecContext& context, proto::CodecPer per) {
  if (per == proto::slice) {
    return {{0, context.elements, 1}};
  }
  return sections(context);
}

}  // namespace troupe::codec_parts
