// What the kernels of attention_bf16.cu are made of: tiles of bfloat16 in shared memory, and products of a warp's rows with
// them.
#pragma once

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/mma.cuh"

#include <cstdint>

namespace troupe::cuda::attention_tiles {

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kWarp = 32;
constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kPad = 8;      // bfloat16 behind a row: rows of 16 bytes, banks apart
constexpr int kColumns = 8;  // of a d
constexpr float kLog2E = 1.44269504f;

/// Heads of up to `width` columns. Sizes are what the registers hold (255 a thread) and 99 KiB of shared memory.
template <int width>
struct Tiling {
  // Of 16 rows, a warp: all of them use what is read of the other side.
  static constexpr int kBands = width <= 64 ? 2 : 1;
  static constexpr int kRows = kWarps * kBands * 16;       // of the block's tile
  static constexpr int kForward = 64;                      // rows of the other side's tile, forward
  static constexpr int kBackward = width <= 64 ? 64 : 32;  // and backward,
  static constexpr int kAtOnce = 32;                       // of which scores are held of so many
  static constexpr int kStride = width + kPad;             // from row to row of a tile

  static constexpr int bytes(int rows) {
    return rows * kStride * static_cast<int>(sizeof(BFloat16));
  }
};

/// A warp's result, its rows by 8 n columns.
template <int width, int n>
using Sums = float[Tiling<width>::kBands][n][4];

/// Of each row that a lane has elements of.
template <int width>
using OfRows = float[Tiling<width>::kBands][2];

struct Problem : AttentionProblem<BFloat16> {
  /// D is a multiple of 8, and all that is copied or written begins at multiples of 16 bytes.
  bool in_eights;
};

template <int width>
struct Lane {
  int lane = static_cast<int>(threadIdx.x) % kWarp;
  int warp_row = static_cast<int>(threadIdx.x) / kWarp * 16 * Tiling<width>::kBands;  // of the tile
  int g = lane / 4;
  int t = lane % 4;

  /// Of element e of a d: its row in the tile, and its column within the eight.
  __device__ int row(int band, int e) const { return warp_row + 16 * band + g + e / 2 * 8; }

  __device__ int column(int e) const { return 2 * t + e % 2; }
};

/// f(element, band, n, e) for each.
template <int bands, int n, class F>
__device__ void for_each(float (&sums)[bands][n][4], F f) {
#pragma unroll
  for (int band = 0; band < bands; ++band) {
#pragma unroll
    for (int i = 0; i < n; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        f(sums[band][i][e], band, i, e);
      }
    }
  }
}

/// Begins to copy: tile[r, c] = x[first + r, c]; zeros beyond row T and column D. Rows of x are `stride` apart.
template <int width, int rows>
__device__ void copy_tile(
    const Problem& p, const BFloat16* x, std::int64_t stride, int first, BFloat16* tile) {
  constexpr int kStride = Tiling<width>::kStride;
  const auto rows_left = static_cast<int>(p.T) - first;
  const auto columns = static_cast<int>(p.D);
  const auto thread = static_cast<int>(threadIdx.x);
  if (p.in_eights) {
    constexpr int kEights = width / 8;
    constexpr int kAtOnce = kThreads / kEights;  // rows
    static_assert(rows % kAtOnce == 0);
    const int c = thread % kEights * 8;
    const int r = thread / kEights;
    const BFloat16* from = x + (first + r) * stride + c;
    BFloat16* to = tile + r * kStride + c;
#pragma unroll
    for (int more = 0; more < rows; more += kAtOnce) {
      const bool inside = r + more < rows_left && c < columns;
      copy_async<16>(to + more * kStride, inside ? from + more * stride : x, inside);
    }
    return;
  }
#pragma unroll 1  // The registers are the products'.
  for (int i = thread; i < rows * width; i += kThreads) {
    const int r = i / width;
    const int c = i % width;
    const bool inside = r < rows_left && c < columns;
    tile[r * kStride + c] = inside ? x[(first + r) * stride + c] : BFloat16{};
  }
}

/// A warp's rows of a tile as left factors, read where they are wanted.
template <int width>
struct InTile {
  const BFloat16* row;  // that this lane gives the address of: matrices go down first

  __device__ InTile(const Lane<width>& me, const BFloat16* tile)
      : row(tile + (me.warp_row + me.lane % 16) * Tiling<width>::kStride + me.lane / 16 * 8) {}

  /// Columns from 16 k.
  __device__ void get(int k, std::uint32_t (&to)[Tiling<width>::kBands][4]) const {
#pragma unroll
    for (int band = 0; band < Tiling<width>::kBands; ++band) {
      load_matrices<false>(to[band], row + 16 * band * Tiling<width>::kStride + 16 * k);
    }
  }
};

/// The same, read once.
template <int width>
struct InRegisters {
  std::uint32_t columns[width / 16][Tiling<width>::kBands][4];

  __device__ explicit InRegisters(const InTile<width>& tile) {
#pragma unroll
    for (int k = 0; k < width / 16; ++k) {
      tile.get(k, columns[k]);
    }
  }

  __device__ void get(int k, std::uint32_t (&to)[Tiling<width>::kBands][4]) const {
#pragma unroll
    for (int band = 0; band < Tiling<width>::kBands; ++band) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        to[band][i] = columns[k][band][i];
      }
    }
  }
};

/// out = the warp's rows times the transpose of b, 8 n rows of a tile.
template <int width, int n, class Rows>
__device__ void multiply_rows(const Lane<width>& me,
                              const Rows& rows,
                              const BFloat16* b,
                              float (&out)[Tiling<width>::kBands][n][4]) {
  constexpr int kStride = Tiling<width>::kStride;
  // The row that this lane gives the address of: matrices go to the right first.
  const BFloat16* b_row = b + (me.lane / 16 * 8 + me.lane % 8) * kStride + me.lane / 8 % 2 * 8;
  for_each(out, [](float& sum, int, int, int) { sum = 0.0f; });
#pragma unroll
  for (int k = 0; k < width / 16; ++k) {
    std::uint32_t left[Tiling<width>::kBands][4];
    rows.get(k, left);
#pragma unroll
    for (int i = 0; i < n; i += 2) {
      std::uint32_t right[4];
      load_matrices<false>(right, b_row + i * 8 * kStride + 16 * k);
#pragma unroll
      for (int band = 0; band < Tiling<width>::kBands; ++band) {
        multiply_add(out[band][i], left[band], right[0], right[1]);
        multiply_add(out[band][i + 1], left[band], right[2], right[3]);
      }
    }
  }
}

/// out += scores, rounded, times x, (8 n, width) of a tile.
template <int width, int n>
__device__ void add_product(const Lane<width>& me,
                            const float (&scores)[Tiling<width>::kBands][n][4],
                            const BFloat16* x,
                            Sums<width, width / 8>& out) {
  constexpr int kStride = Tiling<width>::kStride;
  const BFloat16* x_row = x + me.lane % 16 * kStride + me.lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < n; k += 2) {
    std::uint32_t left[Tiling<width>::kBands][4];
#pragma unroll
    for (int band = 0; band < Tiling<width>::kBands; ++band) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair = scores[band][k + i / 2] + i % 2 * 2;
        left[band][i] = pack(pair[0], pair[1]);
      }
    }
#pragma unroll
    for (int i = 0; i < width / 8; i += 2) {
      std::uint32_t right[4];
      load_matrices<true>(right, x_row + k * 8 * kStride + i * 8);
#pragma unroll
      for (int band = 0; band < Tiling<width>::kBands; ++band) {
        multiply_add(out[band][i], left[band], right[0], right[1]);
        multiply_add(out[band][i + 1], left[band], right[2], right[3]);
      }
    }
  }
}

struct alignas(8) Pair {
  float low, high;
};

__device__ inline void store_pair(float* to, float low, float high) {
  *reinterpret_cast<Pair*>(to) = {low, high};
}

__device__ inline void store_pair(BFloat16* to, float low, float high) {
  *reinterpret_cast<std::uint32_t*>(to) = pack(low, high);
}

/// to[r, c] = sums, within T rows and D columns. Rows of `to` are `stride` apart; its row 0 is row `first`.
template <int width, class Out>
__device__ void write_rows(const Problem& p,
                           const Lane<width>& me,
                           const Sums<width, width / 8>& sums,
                           std::int64_t first,
                           Out* to,
                           std::int64_t stride) {
#pragma unroll
  for (int band = 0; band < Tiling<width>::kBands; ++band) {
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      const int r = me.row(band, e);
#pragma unroll
      for (int n = 0; n < width / 8; ++n) {
        const int c = n * kColumns + me.column(0);
        Out* at = to + r * stride + c;
        if (first + r < p.T && c < p.D) {
          if (p.in_eights) {
            store_pair(at, sums[band][n][e], sums[band][n][e + 1]);
          } else {
            at[0] = from_float<Out>(sums[band][n][e]);
            if (c + 1 < p.D) {
              at[1] = from_float<Out>(sums[band][n][e + 1]);
            }
          }
        }
      }
    }
  }
}

/// compute(first, buffer) for each tile, `step` rows, of [begin, end), while the next is copied. load(first, buffer) has
/// been called for the first one.
template <class Load, class Compute>
__device__ void for_each_tile(int begin, int end, int step, Load load, Compute compute) {
  int buffer = 0;
  for (int first = begin; first < end; first += step, buffer ^= 1) {
    wait_for_copies();
    // All threads' copies are there, and all have read the last tile: its buffer is free.
    __syncthreads();
    if (first + step < end) {
      load(first + step, buffer ^ 1);
    }
    compute(first, buffer);
  }
}

/// Of the four lanes that share a row; each gets the result.
__device__ inline float row_max(float value) {
  for (int distance = 2; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}

__device__ inline float row_sum(float value) {
  for (int distance = 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  return value;
}

/// The last row of the warp's; -1 where none of them is one of the T.
template <int width>
__device__ int last_row(const Problem& p, const Lane<width>& me, int first) {
  const int own = first + me.warp_row;
  return own < p.T ? own + 16 * Tiling<width>::kBands - 1 : -1;
}

/// The last key that one of the warp's rows sees; -1 as above.
template <int width>
__device__ int last_key(const Problem& p, const Lane<width>& me, int first) {
  const int last = last_row(p, me, first);
  return p.causal || last < 0 ? last : static_cast<int>(p.T) - 1;
}

}  // namespace troupe::cuda::attention_tiles
