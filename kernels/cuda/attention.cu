// Attention by tiles in shared memory, so that the scores of a sequence never reach global memory
// (Dao et al. 2022, arXiv:2205.14135). A block of 16 x 16 threads has a tile of queries (for the
// gradients by keys and values: of keys) and goes through the tiles of the other side that it sees.
// Each thread has the rows ty + 16 i of its block's tile and, of the other's or of a head's
// columns, tx + 16 j: lanes then read neighbouring words, or the same ones.
//
// Nothing is added to from two blocks: results are the same every time. The price is that the
// backward computes the scores twice, once for the queries and once for keys and values.
#include "kernels/cuda/attention.cuh"
#include "kernels/functors/math.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace troupe::cuda {

namespace {

using Problem = AttentionProblem<float>;
using Place = AttentionPlace;

constexpr int kSide = 16;
constexpr int kThreads = kSide * kSide;
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kWarp = 32;
constexpr int kPad = 4;  // floats behind a row in shared memory: rows of 16 bytes, banks apart

/// `per_thread` x `per_thread` scores a thread, heads of up to `width` columns.
template <int per_thread, int width>
struct Tiling {
  static constexpr int kPerThread = per_thread;
  static constexpr int kWidth = width;
  static constexpr int kColumns = width / kSide;     // of a head, a thread
  static constexpr int kRows = kSide * per_thread;   // of a tile: queries, or keys
  static constexpr int kRowFloats = width + kPad;    // of a tile of q, k, v or dy
  static constexpr int kScoreFloats = kRows + kPad;  // a row of scores
  static constexpr int kTile = kRows * kRowFloats;
  static constexpr int kScores = kRows * kScoreFloats;
};

/// tile[r, c] = factor x[first + r, c], zeros beyond row T and column D. Rows of x `stride` apart.
template <class Tiles>
__device__ void load_tile(const Problem& p,
                          const float* x,
                          std::int64_t stride,
                          std::int64_t first,
                          float factor,
                          float* tile) {
  for (int i = static_cast<int>(threadIdx.x); i < Tiles::kRows * Tiles::kWidth; i += kThreads) {
    const int r = i / Tiles::kWidth;
    const int c = i % Tiles::kWidth;
    const bool inside = first + r < p.T && c < p.D;
    tile[r * Tiles::kRowFloats + c] = inside ? factor * x[(first + r) * stride + c] : 0.0f;
  }
}

/// Four neighbours at a multiple of 16 bytes.
__device__ float4 load_four(const float* x) {
  return *reinterpret_cast<const float4*>(x);
}

/// out[i][j] = row ty + 16 i of a times row tx + 16 j of b.
template <class Tiles>
__device__ void multiply_rows(const float* a,
                              const float* b,
                              float (&out)[Tiles::kPerThread][Tiles::kPerThread]) {
  constexpr int n = Tiles::kPerThread;
  const int tx = static_cast<int>(threadIdx.x) % kSide;
  const int ty = static_cast<int>(threadIdx.x) / kSide;
  for (auto& row : out) {
    for (float& sum : row) {
      sum = 0.0f;
    }
  }
#pragma unroll 4
  for (int c = 0; c < Tiles::kWidth; c += 4) {
    float4 left[n];
    float4 right[n];
    for (int i = 0; i < n; ++i) {
      left[i] = load_four(a + (ty + kSide * i) * Tiles::kRowFloats + c);
      right[i] = load_four(b + (tx + kSide * i) * Tiles::kRowFloats + c);
    }
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < n; ++j) {
        out[i][j] += left[i].x * right[j].x;
        out[i][j] += left[i].y * right[j].y;
        out[i][j] += left[i].z * right[j].z;
        out[i][j] += left[i].w * right[j].w;
      }
    }
  }
}

/// out[i][d] += the sum over k of scores[ty + 16 i, k] x[k, tx + 16 d].
template <class Tiles>
__device__ void add_product(const float* scores,
                            const float* x,
                            float (&out)[Tiles::kPerThread][Tiles::kColumns]) {
  const int tx = static_cast<int>(threadIdx.x) % kSide;
  const int ty = static_cast<int>(threadIdx.x) / kSide;
  for (int k = 0; k < Tiles::kRows; k += 4) {
    float4 left[Tiles::kPerThread];
    for (int i = 0; i < Tiles::kPerThread; ++i) {
      left[i] = load_four(scores + (ty + kSide * i) * Tiles::kScoreFloats + k);
    }
    for (int d = 0; d < Tiles::kColumns; ++d) {
      const float* column = x + k * Tiles::kRowFloats + tx + kSide * d;
      for (int i = 0; i < Tiles::kPerThread; ++i) {
        out[i][d] += left[i].x * column[0];
        out[i][d] += left[i].y * column[Tiles::kRowFloats];
        out[i][d] += left[i].z * column[2 * Tiles::kRowFloats];
        out[i][d] += left[i].w * column[3 * Tiles::kRowFloats];
      }
    }
  }
}

/// out[i][d] += the sum over k of scores[k, ty + 16 i] x[k, tx + 16 d].
template <class Tiles>
__device__ void add_transposed_product(const float* scores,
                                       const float* x,
                                       float (&out)[Tiles::kPerThread][Tiles::kColumns]) {
  const int tx = static_cast<int>(threadIdx.x) % kSide;
  const int ty = static_cast<int>(threadIdx.x) / kSide;
#pragma unroll 4
  for (int k = 0; k < Tiles::kRows; ++k) {
    for (int d = 0; d < Tiles::kColumns; ++d) {
      const float right = x[k * Tiles::kRowFloats + tx + kSide * d];
      for (int i = 0; i < Tiles::kPerThread; ++i) {
        out[i][d] += scores[k * Tiles::kScoreFloats + ty + kSide * i] * right;
      }
    }
  }
}

/// to[ty + 16 i, tx + 16 d] = factor(i) sums[i][d], within T rows and D columns. Rows of `to` are
/// `stride` apart; its row 0 is row `first`.
template <class Tiles, class Factor>
__device__ void write_tile(const Problem& p,
                           const float (&sums)[Tiles::kPerThread][Tiles::kColumns],
                           Factor factor,
                           std::int64_t first,
                           float* to,
                           std::int64_t stride) {
  const int tx = static_cast<int>(threadIdx.x) % kSide;
  const int ty = static_cast<int>(threadIdx.x) / kSide;
  for (int i = 0; i < Tiles::kPerThread; ++i) {
    const int r = ty + kSide * i;
    for (int d = 0; d < Tiles::kColumns; ++d) {
      const int c = tx + kSide * d;
      if (first + r < p.T && c < p.D) {
        to[r * stride + c] = sums[i][d] * factor(i);
      }
    }
  }
}

// -- forward ------------------------------------------------------------------------

/// Of the 16 threads that share a row; each gets the result.
__device__ float row_max(float value) {
  for (int distance = kSide / 2; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, value, distance);
    value = other > value ? other : value;
  }
  return value;
}

__device__ float row_sum(float value) {
  for (int distance = kSide / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  return value;
}

template <class Tiles>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(const __grid_constant__ Problem p, float* y, float* log_sum) {
  constexpr int n = Tiles::kPerThread;
  extern __shared__ float4 shared[];
  float* q = reinterpret_cast<float*>(shared);
  float* k_or_v = q + Tiles::kTile;
  float* probabilities = k_or_v + Tiles::kTile;
  const Place place = place_of_block(p, Tiles::kRows, true);
  const int tx = static_cast<int>(threadIdx.x) % kSide;
  const int ty = static_cast<int>(threadIdx.x) / kSide;

  load_tile<Tiles>(p, p.qkv + place.in_q, p.W, place.first, p.scale, q);
  float out[n][Tiles::kColumns] = {};
  float largest[n];
  float sum[n] = {};
  for (float& value : largest) {
    value = -std::numeric_limits<float>::infinity();
  }
  for (std::int64_t key = 0; key < p.keys_of(place.first + 1); key += Tiles::kRows) {
    __syncthreads();  // The last round's values and probabilities have been read.
    load_tile<Tiles>(p, p.qkv + place.in_k, p.W, key, 1.0f, k_or_v);
    __syncthreads();
    float scores[n][n];
    multiply_rows<Tiles>(q, k_or_v, scores);
    for (int i = 0; i < n; ++i) {
      const std::int64_t query = place.first + ty + kSide * i;
      float most = largest[i];
      for (int j = 0; j < n; ++j) {
        const bool seen = p.sees(query, key + tx + kSide * j);
        scores[i][j] = seen ? scores[i][j] : -std::numeric_limits<float>::infinity();
        most = scores[i][j] > most ? scores[i][j] : most;
      }
      most = row_max(most);
      // Every row sees key 0, in the first round: from there on `most` is finite.
      const float shrink = exp_float(largest[i] - most);
      float share = 0.0f;
      for (int j = 0; j < n; ++j) {
        const bool seen = p.sees(query, key + tx + kSide * j);
        const float e = seen ? exp_float(scores[i][j] - most) : 0.0f;
        probabilities[(ty + kSide * i) * Tiles::kScoreFloats + tx + kSide * j] = e;
        share += e;
      }
      sum[i] = sum[i] * shrink + row_sum(share);
      largest[i] = most;
      for (float& value : out[i]) {
        value *= shrink;
      }
    }
    __syncthreads();  // The keys have been read, the probabilities written.
    load_tile<Tiles>(p, p.qkv + place.in_v, p.W, key, 1.0f, k_or_v);
    __syncthreads();
    add_product<Tiles>(probabilities, k_or_v, out);
  }
  write_tile<Tiles>(
      p,
      out,
      [&](int i) { return 1.0f / sum[i]; },
      place.first,
      y + place.in_y + place.first * p.C,
      p.C);
  for (int i = 0; i < n; ++i) {
    const std::int64_t query = place.first + ty + kSide * i;
    if (tx == 0 && query < p.T) {
      log_sum[place.head * p.T + query] = largest[i] + logf(sum[i]);
    }
  }
}

// -- backward -----------------------------------------------------------------------

/// delta[b, h, t] = the sum over the head's columns of dy y; a warp each. Shape: (B, heads, T).
__global__ void __launch_bounds__(kThreads)
    delta_kernel(const __grid_constant__ Problem p, const float* y, float* delta) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t warps = std::int64_t{gridDim.x} * (kThreads / kWarp);
  for (std::int64_t row = std::int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
       row < p.B * p.heads * p.T;
       row += warps) {
    const std::int64_t head = row / p.T;
    const std::int64_t first = (head / p.heads * p.T + row % p.T) * p.C + head % p.heads * p.D;
    float sum = 0.0f;
    for (std::int64_t c = lane; c < p.D; c += kWarp) {
      sum += p.dy[first + c] * y[first + c];
    }
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, distance);
    }
    if (lane == 0) {
      delta[row] = sum;
    }
  }
}

/// The block's tile of probabilities (query, key) and of the gradients of their scores, from tiles
/// of q (scaled), k, v and dy. Zeros where a query does not see a key or is none. `probabilities`
/// may be null.
template <class Tiles>
__device__ void score_gradients(const Problem& p,
                                std::int64_t head,
                                std::int64_t query_first,
                                std::int64_t key_first,
                                const float* q,
                                const float* k,
                                const float* v,
                                const float* dy,
                                float* probabilities,
                                float* gradients) {
  constexpr int n = Tiles::kPerThread;
  const int tx = static_cast<int>(threadIdx.x) % kSide;
  const int ty = static_cast<int>(threadIdx.x) / kSide;
  float scores[n][n];
  float dp[n][n];
  multiply_rows<Tiles>(q, k, scores);
  multiply_rows<Tiles>(dy, v, dp);
  for (int i = 0; i < n; ++i) {
    const std::int64_t query = query_first + ty + kSide * i;
    const bool exists = query < p.T;
    const float log_sum = exists ? p.log_sum[head * p.T + query] : 0.0f;
    const float delta = exists ? p.delta[head * p.T + query] : 0.0f;
    for (int j = 0; j < n; ++j) {
      const bool seen = exists && p.sees(query, key_first + tx + kSide * j);
      const float e = seen ? exp_float(scores[i][j] - log_sum) : 0.0f;
      const int at = (ty + kSide * i) * Tiles::kScoreFloats + tx + kSide * j;
      if (probabilities) {
        probabilities[at] = e;
      }
      gradients[at] = seen ? e * (dp[i][j] - delta) : 0.0f;
    }
  }
}

/// The gradient by q, for one tile of queries.
template <class Tiles>
__global__ void __launch_bounds__(kThreads)
    query_gradient_kernel(const __grid_constant__ Problem p, float* dqkv) {
  extern __shared__ float4 shared[];
  float* q = reinterpret_cast<float*>(shared);
  float* k = q + Tiles::kTile;
  float* v = k + Tiles::kTile;
  float* dy = v + Tiles::kTile;
  float* gradients = dy + Tiles::kTile;
  const Place place = place_of_block(p, Tiles::kRows, true);
  load_tile<Tiles>(p, p.qkv + place.in_q, p.W, place.first, p.scale, q);
  load_tile<Tiles>(p, p.dy + place.in_y, p.C, place.first, 1.0f, dy);
  float out[Tiles::kPerThread][Tiles::kColumns] = {};
  for (std::int64_t key = 0; key < p.keys_of(place.first + 1); key += Tiles::kRows) {
    __syncthreads();  // The last round's keys and gradients have been read.
    load_tile<Tiles>(p, p.qkv + place.in_k, p.W, key, 1.0f, k);
    load_tile<Tiles>(p, p.qkv + place.in_v, p.W, key, 1.0f, v);
    __syncthreads();
    score_gradients<Tiles>(p, place.head, place.first, key, q, k, v, dy, nullptr, gradients);
    __syncthreads();
    add_product<Tiles>(gradients, k, out);
  }
  write_tile<Tiles>(
      p,
      out,
      [&](int) { return p.scale; },
      place.first,
      dqkv + place.in_q + place.first * p.W,
      p.W);
}

/// The gradients by k and v, for one tile of keys.
template <class Tiles>
__global__ void __launch_bounds__(kThreads)
    key_gradient_kernel(const __grid_constant__ Problem p, float* dqkv) {
  extern __shared__ float4 shared[];
  float* q = reinterpret_cast<float*>(shared);
  float* k = q + Tiles::kTile;
  float* v = k + Tiles::kTile;
  float* dy = v + Tiles::kTile;
  float* probabilities = dy + Tiles::kTile;
  float* gradients = probabilities + Tiles::kScores;
  const Place place = place_of_block(p, Tiles::kRows, false);
  load_tile<Tiles>(p, p.qkv + place.in_k, p.W, place.first, 1.0f, k);
  load_tile<Tiles>(p, p.qkv + place.in_v, p.W, place.first, 1.0f, v);
  float dk[Tiles::kPerThread][Tiles::kColumns] = {};
  float dv[Tiles::kPerThread][Tiles::kColumns] = {};
  for (std::int64_t i = 0; i < p.group; ++i) {
    const Place of = place.of_group(p, i);
    for (std::int64_t query = p.causal ? place.first : 0; query < p.T; query += Tiles::kRows) {
      __syncthreads();  // The last round's queries, dy, probabilities and gradients have been read.
      load_tile<Tiles>(p, p.qkv + of.in_q, p.W, query, p.scale, q);
      load_tile<Tiles>(p, p.dy + of.in_y, p.C, query, 1.0f, dy);
      __syncthreads();
      score_gradients<Tiles>(p, of.head, query, place.first, q, k, v, dy, probabilities, gradients);
      __syncthreads();
      add_transposed_product<Tiles>(probabilities, dy, dv);
      add_transposed_product<Tiles>(gradients, q, dk);
    }
  }
  float* to = dqkv + place.first * p.W;
  const auto one = [](int) {
    return 1.0f;
  };
  write_tile<Tiles>(p, dk, one, place.first, to + place.in_k, p.W);
  write_tile<Tiles>(p, dv, one, place.first, to + place.in_v, p.W);
}

// -- launches -----------------------------------------------------------------------

template <class Tiles, class... Parameters, class... Arguments>
void launch(const Backend::State& state,
            void (*kernel)(Problem, Parameters...),
            std::int64_t heads,
            int shared_floats,
            const Problem& p,
            Arguments... arguments) {
  const int bytes = shared_floats * static_cast<int>(sizeof(float));
  launch_attention(state, kernel, heads, Tiles::kRows, kThreads, bytes, p, arguments...);
}

}  // namespace

void attention_forward(Stream& stream,
                       const AttentionForm& form,
                       const Tensor& qkv,
                       const Tensor& y,
                       const Tensor& log_sum) {
  if (stream.precision() == Precision::bf16) {
    attention_forward_bf16(stream, form, qkv, y, log_sum);
    return;
  }
  const Backend::State& state = activate(stream);
  const auto p = attention_problem<float>(form, qkv);
  with_width(p.D, [&]<int width>() {
    using Tiles = Tiling<4, width>;  // at most 83 KiB
    launch<Tiles>(state,
                  forward_kernel<Tiles>,
                  p.heads,
                  2 * Tiles::kTile + Tiles::kScores,
                  p,
                  y.data<float>(),
                  log_sum.data<float>());
  });
}

void attention_backward(Stream& stream, const AttentionGradient& a) {
  if (stream.precision() == Precision::bf16) {
    attention_backward_bf16(stream, a);
    return;
  }
  const Tensor delta = stream.allocate(a.log_sum.shape());
  const Backend::State& state = activate(stream);
  auto p = attention_problem<float>(a.form, a.qkv);
  p.log_sum = a.log_sum.data<float>();
  p.dy = a.dy.data<float>();
  p.delta = delta.data<float>();
  const std::int64_t rows_a_block = kThreads / kWarp;
  const std::int64_t blocks =
      std::min<std::int64_t>((delta.elements() + rows_a_block - 1) / rows_a_block, 4096);
  delta_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, state.stream.get()>>>(
      p, a.y.data<float>(), delta.data<float>());
  TROUPE_CUDA_CHECK(cudaGetLastError());
  with_width(p.D, [&]<int width>() {
    // Smaller tiles of wide heads: at most 75 KiB, so that every GPU has room for them.
    using Tiles = Tiling<(width <= 32 ? 4 : 2), width>;
    launch<Tiles>(state,
                  query_gradient_kernel<Tiles>,
                  p.heads,
                  4 * Tiles::kTile + Tiles::kScores,
                  p,
                  a.dqkv.data<float>());
    launch<Tiles>(state,
                  key_gradient_kernel<Tiles>,
                  p.heads / p.group,
                  4 * Tiles::kTile + 2 * Tiles::kScores,
                  p,
                  a.dqkv.data<float>());
  });
}

}  // namespace troupe::cuda
