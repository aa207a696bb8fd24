// Several floats at a time, by the compiler's vector extension, and the register tile that matrix
// products and convolutions are made of.
#pragma once

#if defined(__FMA__) || defined(__AVX512F__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <cstdint>
#include <cstring>
#include <utility>

// Everything here is inlined: how vectors would be passed to functions does not matter.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"

namespace troupe::cpu::TROUPE_ISA {

using Floats4 = float __attribute__((vector_size(16)));
using Floats8 = float __attribute__((vector_size(32)));
using Floats16 = float __attribute__((vector_size(64)));

/// As wide as a register of the machine compiled for.
#ifdef __AVX512F__
using Floats = Floats16;
using Ints = std::int32_t __attribute__((vector_size(64)));
using Doubles = double __attribute__((vector_size(64)));
constexpr std::int64_t kVectorRegisters = 32;
#elif defined(__aarch64__)
using Floats = Floats4;  // NEON's
using Ints = std::int32_t __attribute__((vector_size(16)));
using Doubles = double __attribute__((vector_size(16)));
constexpr std::int64_t kVectorRegisters = 32;
#else
using Floats = Floats8;
using Ints = std::int32_t __attribute__((vector_size(32)));
using Doubles = double __attribute__((vector_size(32)));
constexpr std::int64_t kVectorRegisters = 16;
#endif

/// How many registers a tile may fill. Fewer under the address sanitizer, whose checks in these
/// unrolled loops would take minutes to compile.
#ifdef __SANITIZE_ADDRESS__
constexpr std::int64_t kRegisters = 8;
#else
constexpr std::int64_t kRegisters = kVectorRegisters;
#endif

template <class V>
constexpr std::int64_t kLanesOf = static_cast<std::int64_t>(sizeof(V) / sizeof(V{}[0]));
constexpr std::int64_t kLanes = kLanesOf<Floats>;

/// Anywhere; `p` need not be aligned.
template <class V = Floats, class T>
inline V load(const T* p) {
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

template <class V, class T>
inline void store(T* p, V v) {
  std::memcpy(p, &v, sizeof v);
}

template <class V = Floats>
inline V broadcast(float x) {
  return x - V{};
}

/// The first `count` lanes; the others are `rest`.
inline Floats load_part(const float* p, std::int64_t count, float rest = 0.0f) {
  Floats v = broadcast(rest);
  for (std::int64_t i = 0; i < count; ++i) {
    v[i] = p[i];
  }
  return v;
}

template <class V, class T>
inline void store_part(T* p, V v, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    p[i] = v[i];
  }
}

/// a b + c, rounded once where the machine can.
template <class V>
inline V multiply_add(V a, V b, V c) {
#ifdef __AVX512F__
  if constexpr (kLanesOf<V> == 16) {
    return _mm512_fmadd_ps(a, b, c);
  }
#endif
#ifdef __FMA__
  if constexpr (kLanesOf<V> == 8) {
    return _mm256_fmadd_ps(a, b, c);
  }
#endif
#ifdef __aarch64__
  if constexpr (kLanesOf<V> == 4) {
    return vfmaq_f32(c, a, b);
  }
  if constexpr (kLanesOf<V> == 8) {  // two registers
    const auto low = [](V v) {
      return __builtin_shufflevector(v, v, 0, 1, 2, 3);
    };
    const auto high = [](V v) {
      return __builtin_shufflevector(v, v, 4, 5, 6, 7);
    };
    return __builtin_shufflevector(multiply_add<Floats4>(low(a), low(b), low(c)),
                                   multiply_add<Floats4>(high(a), high(b), high(c)),
                                   0,
                                   1,
                                   2,
                                   3,
                                   4,
                                   5,
                                   6,
                                   7);
  }
#endif
  return a * b + c;
}

/// e^x to 2 units in the last place for x in [-87, 88], and the value at -87 below; above it
/// nothing is promised. NaN stays NaN. The series of functors/math.hpp, with fused additions.
inline Floats exponential(Floats x) {
  const Floats round = broadcast(12582912.0f);  // 1.5 * 2^23: its addition leaves an integer
  const Floats low = broadcast(-87.0f);
  x = x < low ? low : x;
  const Floats shifted = multiply_add(x, broadcast(1.44269504f), round);
  const Floats n = shifted - round;
  Floats r = multiply_add(n, broadcast(-0.693359375f), x);
  r = multiply_add(n, broadcast(2.12194440e-4f), r);  // x - n ln 2
  Floats q = multiply_add(broadcast(1.0f / 5040.0f), r, broadcast(1.0f / 720.0f));
  q = multiply_add(q, r, broadcast(1.0f / 120.0f));
  q = multiply_add(q, r, broadcast(1.0f / 24.0f));
  q = multiply_add(q, r, broadcast(1.0f / 6.0f));
  q = multiply_add(q, r, broadcast(0.5f));
  const Ints bits = (reinterpret_cast<Ints>(shifted) - reinterpret_cast<Ints>(round) + 127) << 23;
  const auto two_to_n = reinterpret_cast<Floats>(bits);
  return multiply_add(two_to_n, multiply_add(q, r * r, r), two_to_n);
}

/// For each two rows whose numbers differ in the bit `distance` alone: the upper row's elements in
/// columns with this bit change places with the lower row's in columns without it. Then the same
/// for the bits above.
template <int distance, int... lane>
inline void exchange_blocks(Floats (&rows)[kLanes], std::integer_sequence<int, lane...> lanes) {
  constexpr int n = static_cast<int>(kLanes);
#pragma GCC unroll 16
  for (int i = 0; i < n; ++i) {
    if ((i & distance) == 0) {
      const Floats upper = rows[i];
      const Floats lower = rows[i + distance];
      rows[i] =
          __builtin_shufflevector(upper, lower, (lane & distance ? lane - distance + n : lane)...);
      rows[i + distance] =
          __builtin_shufflevector(upper, lower, (lane & distance ? lane + n : lane + distance)...);
    }
  }
  if constexpr (2 * distance < n) {
    exchange_blocks<2 * distance>(rows, lanes);
  }
}

/// rows[i][j] and rows[j][i] exchanged.
inline void transpose(Floats (&rows)[kLanes]) {
  exchange_blocks<1>(rows, std::make_integer_sequence<int, static_cast<int>(kLanes)>());
}

// Where the rows of a tile's left factor begin. A row is addressed by the pointer `base_of(r)` and
// the constant distance `beyond(r)`: fourteen rows at unknown distances would need more pointers
// than there are registers.

struct RowsSideBySide {
  static constexpr int bases(int /*rows*/) { return 1; }

  static constexpr int base_of(int /*r*/) { return 0; }

  static constexpr int beyond(int r) { return r; }

  static constexpr std::int64_t offset(int /*base*/) { return 0; }
};

/// Rows at a distance that is known.
template <int stride>
struct RowsEvery {
  static constexpr int bases(int /*rows*/) { return 1; }

  static constexpr int base_of(int /*r*/) { return 0; }

  static constexpr int beyond(int r) { return r * stride; }

  static constexpr std::int64_t offset(int /*base*/) { return 0; }
};

struct RowsApart {
  std::int64_t stride;

  static constexpr int bases(int rows) { return rows; }

  static constexpr int base_of(int r) { return r; }

  static constexpr int beyond(int /*r*/) { return 0; }

  constexpr std::int64_t offset(int base) const { return base * stride; }
};

/// Runs of `run` rows side by side, the runs apart.
template <int run>
struct RowsInRuns {
  std::int64_t stride;

  static constexpr int bases(int rows) { return (rows + run - 1) / run; }

  static constexpr int base_of(int r) { return r / run; }

  static constexpr int beyond(int r) { return r % run; }

  constexpr std::int64_t offset(int base) const { return base * stride; }
};

/// rows x (vectors lanes) sums, held in registers. Each sum is added up in the order of k, whatever
/// the tile's size, so that results do not depend on how work is cut into tiles.
template <class V, int rows, int vectors>
struct Tile {
  static constexpr std::int64_t kLanesEach = kLanesOf<V>;

  V sum[rows][vectors];

  /// f(sum, r, v) for each of the vectors.
  template <class F>
  [[gnu::always_inline]] void for_each(F f) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        f(sum[r][v], r, v);
      }
    }
  }

  [[gnu::always_inline]] void clear() {
    for_each([](V& s, int, int) { s = V{}; });
  }

  /// to[r to_row + c] = sum[r, c].
  [[gnu::always_inline]] void write(float* to, std::int64_t to_row) {
    for_each([&](const V& s, int r, int v) { store(to + r * to_row + v * kLanesEach, s); });
  }

  /// sum[r, c] += a[row r + k a_step] b[k b_step + c] for k in [0, depth).
  template <class Row>
  [[gnu::always_inline]] void add_product(std::int64_t depth,
                                          const float* a,
                                          Row row,
                                          std::int64_t a_step,
                                          const float* b,
                                          std::int64_t b_step) {
    constexpr int kBases = Row::bases(rows);
    const float* base[kBases];
#pragma GCC unroll 16
    for (int i = 0; i < kBases; ++i) {
      base[i] = a + row.offset(i);
    }
    std::int64_t at = 0;
    for (std::int64_t k = 0; k < depth; ++k) {
      V right[vectors];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        right[v] = load<V>(b + v * kLanesEach);
      }
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        const V left = broadcast<V>(base[Row::base_of(r)][at + Row::beyond(r)]);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) {
          sum[r][v] = multiply_add(left, right[v], sum[r][v]);
        }
      }
      at += a_step;
      b += b_step;
    }
  }
};

// The tile of products, convolutions and attention.
constexpr int kTileVectors = 2;
constexpr std::int64_t kTileWidth = kTileVectors * kLanes;  // columns
constexpr int kTileRows = static_cast<int>(kRegisters - 2 - kTileVectors) /
                          kTileVectors;  // at most: 6 with 16 registers, 14 with 32

/// A row of a tile's right factor.
inline void copy_width(const float* from, float* to) {
  for (std::int64_t c = 0; c < kTileWidth; c += kLanes) {
    store(to + c, load(from + c));
  }
}

/// f(first, std::integral_constant<int, rows>) for `extent` cut into pieces of nearly the same
/// size, at most `rows_max`: even pieces keep the tiles large enough to hide the latency of their
/// additions.
template <int rows_max, class F>
inline void for_each_piece(std::int64_t extent, F&& f) {
  const std::int64_t pieces = (extent + rows_max - 1) / rows_max;
  std::int64_t first = 0;
  for (std::int64_t i = 0; i < pieces; ++i) {
    const std::int64_t size = extent / pieces + (i < extent % pieces ? 1 : 0);
    [&]<int... rows>(std::integer_sequence<int, rows...>) {
      ((size == rows + 1 ? f(first, std::integral_constant<int, rows + 1>()) : void()), ...);
    }
    (std::make_integer_sequence<int, rows_max>());
    first += size;
  }
}

}  // namespace troupe::cpu::TROUPE_ISA

#pragma GCC diagnostic pop
