// Attention with Tensor Cores: the scheme of attention.cu (tiles in shared memory, scores computed again in the backward,
// nothing added to from two blocks), with what products read rounded to bfloat16: q, k, v, dy, the probabilities and
// the gradients of the scores. Sums, maxima, exponentials and log_sum are float32.
//
// A block of four warps has a tile of 64 queries (for the gradients by keys and values: of keys), a warp 16 rows of it.
// The tiles of the other side pass through shared memory. A warp's scores never leave its registers: as d of one product
// and a of the next they are held alike (mma.cuh).
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/mma.cuh"

#include <cmath>
#include <cstdint>
#include <limits>

namespace troupe::cuda {

namespace {

using Problem = AttentionProblem;
using Place = AttentionPlace;

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kWarp = 32;
constexpr int kWarpRows = 16;
constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kRows = kWarps * kWarpRows;  // of a tile: queries, or keys
constexpr int kSteps = kRows / 8;          // d's beside each other that hold a warp's scores
constexpr int kPad = 8;                    // bfloat16 behind a row: rows of 16 bytes, banks apart

/// Heads of up to `width` columns.
template <int width>
struct Tiling {
  static constexpr int kStride = width + kPad;  // from row to row of a tile
  static constexpr int kTile = kRows * kStride;
  static constexpr int kTileBytes = kTile * static_cast<int>(sizeof(BFloat16));
};

/// A warp's (16, 8 n) result.
template <int n>
using Sums = float[n][4];

struct Lane {
  int lane = static_cast<int>(threadIdx.x) % kWarp;
  int warp_row = static_cast<int>(threadIdx.x) / kWarp * kWarpRows;  // of the tile
  int g = lane / 4;
  int t = lane % 4;

  /// Of element e of a d: its row, and its column within the eight.
  __device__ int row(int e) const { return warp_row + g + e / 2 * 8; }

  __device__ int column(int e) const { return 2 * t + e % 2; }
};

/// tile[r, c] = factor x[first + r, c], rounded; zeros beyond row T and column D. Rows of x `stride` apart.
template <int width>
__device__ void load_tile(const Problem& p,
                          const float* x,
                          std::int64_t stride,
                          std::int64_t first,
                          float factor,
                          BFloat16* tile) {
  constexpr int kStride = Tiling<width>::kStride;
  if (p.in_fours) {
    for (int i = static_cast<int>(threadIdx.x); i < kRows * width / 4; i += kThreads) {
      const int r = i / (width / 4);
      const int c = i % (width / 4) * 4;
      uint2 four{0u, 0u};
      if (first + r < p.T && c < p.D) {
        const float4 from = *reinterpret_cast<const float4*>(x + (first + r) * stride + c);
        four = {pack(factor * from.x, factor * from.y), pack(factor * from.z, factor * from.w)};
      }
      *reinterpret_cast<uint2*>(tile + r * kStride + c) = four;
    }
    return;
  }
  for (int i = static_cast<int>(threadIdx.x); i < kRows * width; i += kThreads) {
    const int r = i / width;
    const int c = i % width;
    const bool inside = first + r < p.T && c < p.D;
    tile[r * kStride + c] = to_bfloat16(inside ? factor * x[(first + r) * stride + c] : 0.0f);
  }
}

/// out = the warp's 16 rows of a times the transpose of b, 64 rows. Shapes of tiles: (64, width).
template <int width>
__device__ void multiply_rows(const Lane& me,
                              const BFloat16* a,
                              const BFloat16* b,
                              Sums<kSteps>& out) {
  constexpr int kStride = Tiling<width>::kStride;
  // The rows that this lane gives the addresses of: a's matrices go down first, b's to the right.
  const BFloat16* a_row = a + (me.warp_row + me.lane % 16) * kStride + me.lane / 16 * 8;
  const BFloat16* b_row = b + (me.lane / 16 * 8 + me.lane % 8) * kStride + me.lane / 8 % 2 * 8;
  for (auto& step : out) {
    for (float& sum : step) {
      sum = 0.0f;
    }
  }
#pragma unroll
  for (int k = 0; k < width; k += 16) {
    std::uint32_t left[4];
    load_matrices<false>(left, a_row + k);
#pragma unroll
    for (int n = 0; n < kSteps; n += 2) {
      std::uint32_t right[4];
      load_matrices<false>(right, b_row + n * 8 * kStride + k);
      multiply_add(out[n], left, right[0], right[1]);
      multiply_add(out[n + 1], left, right[2], right[3]);
    }
  }
}

/// out += scores, rounded, (16, 64) times x (64, width).
template <int width>
__device__ void add_product(const Lane& me,
                            const Sums<kSteps>& scores,
                            const BFloat16* x,
                            Sums<width / 8>& out) {
  constexpr int kStride = Tiling<width>::kStride;
  const BFloat16* x_row = x + me.lane % 16 * kStride + me.lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < kSteps; k += 2) {
    const std::uint32_t left[4] = {pack(scores[k][0], scores[k][1]),
                                   pack(scores[k][2], scores[k][3]),
                                   pack(scores[k + 1][0], scores[k + 1][1]),
                                   pack(scores[k + 1][2], scores[k + 1][3])};
#pragma unroll
    for (int n = 0; n < width / 8; n += 2) {
      std::uint32_t right[4];
      load_matrices<true>(right, x_row + k * 8 * kStride + n * 8);
      multiply_add(out[n], left, right[0], right[1]);
      multiply_add(out[n + 1], left, right[2], right[3]);
    }
  }
}

/// to[r, c] = factor[r < 8 ? 0 : 1] sums, within T rows and D columns. Rows of `to` are `stride` apart; its row 0 is row
/// `first`.
template <int width>
__device__ void write_rows(const Problem& p,
                           const Lane& me,
                           const Sums<width / 8>& sums,
                           const float (&factor)[2],
                           std::int64_t first,
                           float* to,
                           std::int64_t stride) {
#pragma unroll
  for (int n = 0; n < width / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int c = 8 * n + me.column(e);
      if (first + me.row(e) < p.T && c < p.D) {
        to[me.row(e) * stride + c] = sums[n][e] * factor[e / 2];
      }
    }
  }
}

/// Of the four lanes that share a row; each gets the result.
__device__ float row_max(float value) {
  for (int distance = 2; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, value, distance);
    value = other > value ? other : value;
  }
  return value;
}

__device__ float row_sum(float value) {
  for (int distance = 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  return value;
}

// -- forward ------------------------------------------------------------------------

template <int width>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(const __grid_constant__ Problem p, float* y, float* log_sum) {
  extern __shared__ uint4 shared[];
  auto* q = reinterpret_cast<BFloat16*>(shared);
  BFloat16* k = q + Tiling<width>::kTile;
  BFloat16* v = k + Tiling<width>::kTile;
  const Place place = place_of_block(p, kRows);
  const float* head = p.qkv + place.in_qkv;
  const Lane me;

  load_tile<width>(p, head, 3 * p.C, place.first, p.scale, q);
  Sums<width / 8> out = {};
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  float largest[2] = {kNone, kNone};  // of rows g and g + 8
  float sum[2] = {};                  // of this lane's columns
  for (std::int64_t key = 0; key <= place.first; key += kRows) {
    __syncthreads();  // The last round's keys and values have been read.
    load_tile<width>(p, head + p.C, 3 * p.C, key, 1.0f, k);
    load_tile<width>(p, head + 2 * p.C, 3 * p.C, key, 1.0f, v);
    __syncthreads();
    Sums<kSteps> scores;
    multiply_rows<width>(me, q, k, scores);
    if (key == place.first) {  // Of all earlier tiles every key is seen.
#pragma unroll
      for (int n = 0; n < kSteps; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          scores[n][e] = 8 * n + me.column(e) <= me.row(e) ? scores[n][e] : kNone;
        }
      }
    }
    float most[2] = {largest[0], largest[1]};
#pragma unroll
    for (int n = 0; n < kSteps; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        most[e / 2] = scores[n][e] > most[e / 2] ? scores[n][e] : most[e / 2];
      }
    }
    // Every row sees key 0, in the first round: from there on `most` is finite.
    float shrink[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      most[half] = row_max(most[half]);
      shrink[half] = __expf(largest[half] - most[half]);
      largest[half] = most[half];
      sum[half] *= shrink[half];
    }
#pragma unroll
    for (int n = 0; n < kSteps; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        scores[n][e] = __expf(scores[n][e] - most[e / 2]);
        sum[e / 2] += scores[n][e];
      }
    }
#pragma unroll
    for (int n = 0; n < width / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        out[n][e] *= shrink[e / 2];
      }
    }
    add_product<width>(me, scores, v, out);
  }
  sum[0] = row_sum(sum[0]);
  sum[1] = row_sum(sum[1]);
  const float factor[2] = {1.0f / sum[0], 1.0f / sum[1]};
  write_rows<width>(p, me, out, factor, place.first, y + place.in_y + place.first * p.C, p.C);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t query = place.first + me.row(2 * half);
    if (me.t == 0 && query < p.T) {
      log_sum[place.head * p.T + query] = largest[half] + logf(sum[half]);
    }
  }
}

// -- backward -----------------------------------------------------------------------

/// Of query number `query` of the head; 0 where there is none.
__device__ float of_query(const Problem& p, const float* x, std::int64_t head, std::int64_t query) {
  return query < p.T ? x[head * p.T + query] : 0.0f;
}

/// The gradient by q, for one tile of queries.
template <int width>
__global__ void __launch_bounds__(kThreads)
    query_gradient_kernel(const __grid_constant__ Problem p, float* dqkv) {
  extern __shared__ uint4 shared[];
  auto* q = reinterpret_cast<BFloat16*>(shared);
  BFloat16* k = q + Tiling<width>::kTile;
  BFloat16* v = k + Tiling<width>::kTile;
  BFloat16* dy = v + Tiling<width>::kTile;
  const Place place = place_of_block(p, kRows);
  const float* head = p.qkv + place.in_qkv;
  const Lane me;
  load_tile<width>(p, head, 3 * p.C, place.first, p.scale, q);
  load_tile<width>(p, p.dy + place.in_y, p.C, place.first, 1.0f, dy);
  float log_sum[2];
  float delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t query = place.first + me.row(2 * half);
    log_sum[half] = of_query(p, p.log_sum, place.head, query);
    delta[half] = of_query(p, p.delta, place.head, query);
  }
  Sums<width / 8> out = {};
  for (std::int64_t key = 0; key <= place.first; key += kRows) {
    __syncthreads();  // The last round's keys and values have been read.
    load_tile<width>(p, head + p.C, 3 * p.C, key, 1.0f, k);
    load_tile<width>(p, head + 2 * p.C, 3 * p.C, key, 1.0f, v);
    __syncthreads();
    Sums<kSteps> scores;
    Sums<kSteps> dp;
    multiply_rows<width>(me, q, k, scores);
    multiply_rows<width>(me, dy, v, dp);
#pragma unroll
    for (int n = 0; n < kSteps; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const bool seen = key + 8 * n + me.column(e) <= place.first + me.row(e);
        scores[n][e] =
            seen ? __expf(scores[n][e] - log_sum[e / 2]) * (dp[n][e] - delta[e / 2]) : 0.0f;
      }
    }
    add_product<width>(me, scores, k, out);
  }
  const float factor[2] = {p.scale, p.scale};
  write_rows<width>(
      p, me, out, factor, place.first, dqkv + place.in_qkv + place.first * 3 * p.C, 3 * p.C);
}

/// The gradients by k and v, for one tile of keys. A warp's scores are (keys, queries) here.
template <int width>
__global__ void __launch_bounds__(kThreads)
    key_gradient_kernel(const __grid_constant__ Problem p, float* dqkv) {
  extern __shared__ uint4 shared[];
  auto* q = reinterpret_cast<BFloat16*>(shared);
  BFloat16* k = q + Tiling<width>::kTile;
  BFloat16* v = k + Tiling<width>::kTile;
  BFloat16* dy = v + Tiling<width>::kTile;
  auto* log_sum =
      reinterpret_cast<float*>(dy + Tiling<width>::kTile);  // (64) of the tile of queries
  float* delta = log_sum + kRows;                           // (64)
  const Place place = place_of_block(p, kRows);
  const float* head = p.qkv + place.in_qkv;
  const Lane me;
  load_tile<width>(p, head + p.C, 3 * p.C, place.first, 1.0f, k);
  load_tile<width>(p, head + 2 * p.C, 3 * p.C, place.first, 1.0f, v);
  Sums<width / 8> dk = {};
  Sums<width / 8> dv = {};
  for (std::int64_t query = place.first; query < p.T; query += kRows) {
    __syncthreads();  // The last round's queries, dy and what belongs to them have been read.
    load_tile<width>(p, head, 3 * p.C, query, p.scale, q);
    load_tile<width>(p, p.dy + place.in_y, p.C, query, 1.0f, dy);
    if (const int i = static_cast<int>(threadIdx.x); i < kRows) {
      log_sum[i] = of_query(p, p.log_sum, place.head, query + i);
      delta[i] = of_query(p, p.delta, place.head, query + i);
    }
    __syncthreads();
    Sums<kSteps> probabilities;
    Sums<kSteps> gradients;
    multiply_rows<width>(me, k, q, probabilities);
    multiply_rows<width>(me, v, dy, gradients);
#pragma unroll
    for (int n = 0; n < kSteps; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int i = 8 * n + me.column(e);  // of the tile of queries
        const bool seen = query + i < p.T && place.first + me.row(e) <= query + i;
        const float probability = seen ? __expf(probabilities[n][e] - log_sum[i]) : 0.0f;
        probabilities[n][e] = probability;
        gradients[n][e] = seen ? probability * (gradients[n][e] - delta[i]) : 0.0f;
      }
    }
    add_product<width>(me, probabilities, dy, dv);
    add_product<width>(me, gradients, q, dk);
  }
  float* to = dqkv + place.in_qkv + place.first * 3 * p.C;
  const float one[2] = {1.0f, 1.0f};
  write_rows<width>(p, me, dk, one, place.first, to + p.C, 3 * p.C);
  write_rows<width>(p, me, dv, one, place.first, to + 2 * p.C, 3 * p.C);
}

}  // namespace

void attention_forward_bf16(const Backend::State& state,
                            const AttentionProblem& p,
                            float* y,
                            float* log_sum) {
  with_width(p.D, [&]<int width>() {
    launch_attention(state,
                     forward_kernel<width>,
                     kRows,
                     kThreads,
                     3 * Tiling<width>::kTileBytes,  // at most 51 KiB
                     p,
                     y,
                     log_sum);
  });
}

void attention_backward_bf16(const Backend::State& state, const AttentionProblem& p, float* dqkv) {
  constexpr int kOfQueries = 2 * kRows * static_cast<int>(sizeof(float));
  with_width(p.D, [&]<int width>() {
    constexpr int kTilesBytes = 4 * Tiling<width>::kTileBytes;  // at most 68 KiB
    launch_attention(state, query_gradient_kernel<width>, kRows, kThreads, kTilesBytes, p, dqkv);
    launch_attention(
        state, key_gradient_kernel<width>, kRows, kThreads, kTilesBytes + kOfQueries, p, dqkv);
  });
}

}  // namespace troupe::cuda
