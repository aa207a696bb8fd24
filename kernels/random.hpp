// Counter-based randomness: a number is a function of (seed, purpose, index) and of nothing else,
// so that weights, shuffles and durations are the same for every backend, topology and number of
// workers.
#pragma once

#include "kernels/hd.hpp"

#include <cmath>
#include <cstdint>

namespace troupe {

/// One round of SplitMix64 (Steele, Lea & Flood 2014): a bijection with full avalanche.
TROUPE_HD constexpr std::uint64_t mix(std::uint64_t z) {
  z += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

/// FNV-1a of a name, to key randomness by it.
constexpr std::uint64_t name_key(const char* text, std::uint64_t length) {
  std::uint64_t h = 0xcbf29ce484222325ull;
  for (std::uint64_t i = 0; i < length; ++i) {
    h = (h ^ static_cast<unsigned char>(text[i])) * 0x100000001b3ull;
  }
  return h;
}

/// What the numbers are for; part of the key, so that no two uses share a stream.
enum class Purpose : std::uint64_t {
  weights,
  shuffle,
  dataset,
  duration,
  teacher,
  test,
  augment,
  dropout,
  sample,
  peers,
};

__extension__ typedef unsigned __int128 Wide;

/// An endless sequence of 64-bit numbers, addressed by index.
struct RandomStream {
  std::uint64_t key;

  TROUPE_HD constexpr RandomStream(std::uint64_t seed, Purpose purpose, std::uint64_t name = 0)
      : key(mix(mix(mix(seed) ^ static_cast<std::uint64_t>(purpose)) ^ name)) {}

  TROUPE_HD constexpr std::uint64_t bits(std::uint64_t index) const {
    return mix(key ^ mix(index));
  }

  /// In [0, 1), 53 bits.
  TROUPE_HD constexpr double uniform(std::uint64_t index) const {
    return static_cast<double>(bits(index) >> 11) * 0x1p-53;
  }

  /// In [0, n), n > 0. The bias is below n / 2^64.
  TROUPE_HD constexpr std::uint64_t below(std::uint64_t index, std::uint64_t n) const {
    return static_cast<std::uint64_t>(static_cast<Wide>(bits(index)) * n >> 64);
  }

  /// Standard normal (Box-Muller; uses the counters 2 index and 2 index + 1).
  double normal(std::uint64_t index) const {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform(2 * index)));
    return radius * std::cos(6.283185307179586 * uniform(2 * index + 1));
  }
};

}  // namespace troupe
