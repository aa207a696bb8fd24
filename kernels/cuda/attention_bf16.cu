// Attention with Tensor Cores: the scheme of attention.cu (tiles in shared memory, scores computed again in the backward,
// nothing added to from two blocks), with what products read rounded to bfloat16: q, k, v, dy, the probabilities and
// the gradients of the scores. Sums, maxima, exponentials, log_sum and delta are float32.
//
// A block has a tile of queries (for the gradients by keys and values: of keys), each of its four warps 16 or 32 rows of
// it. The tiles of the other side pass through two buffers in shared memory: while products read one, the next tile is
// copied to the other. A warp's scores never leave its registers: as d of one product and a of the next they are held
// alike (mma.cuh). What a warp's rows do not see it leaves out.
#include "kernels/convert.hpp"
#include "kernels/cuda/attention_tiles.cuh"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace troupe::cuda {

namespace {

using namespace attention_tiles;
using Place = AttentionPlace;

// -- forward ------------------------------------------------------------------------

/// scores, not yet scaled, become probabilities times what `sum` adds up; what was added up before shrinks to the new
/// largest score.
template <int width, int n>
__device__ void take_exponentials(float to_powers,
                                  float (&scores)[Tiling<width>::kBands][n][4],
                                  OfRows<width>& largest,
                                  OfRows<width>& sum,
                                  Sums<width, width / 8>& out) {
  constexpr int kBands = Tiling<width>::kBands;
  OfRows<width> most;
  OfRows<width> shrink;
#pragma unroll
  for (int band = 0; band < kBands; ++band) {
    most[band][0] = largest[band][0];
    most[band][1] = largest[band][1];
  }
  for_each(scores, [&](float& score, int band, int, int e) {
    most[band][e / 2] = fmaxf(most[band][e / 2], score);
  });
  // Every row sees key 0, in the first round: from there on `most` is finite.
#pragma unroll
  for (int band = 0; band < kBands; ++band) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float now = row_max(most[band][half]);
      shrink[band][half] = exp2_quickly((largest[band][half] - now) * to_powers);
      largest[band][half] = now;
      sum[band][half] *= shrink[band][half];
      most[band][half] = -now * to_powers;
    }
  }
  for_each(scores, [&](float& score, int band, int, int e) {
    score = exp2_quickly(fmaf(score, to_powers, most[band][e / 2]));
    sum[band][e / 2] += score;
  });
  for_each(out, [&](float& value, int band, int, int e) { value *= shrink[band][e / 2]; });
}

template <int width, class Out>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(const __grid_constant__ Problem p, Out* y, float* log_sum) {
  using Tiles = Tiling<width>;
  constexpr int kKeys = Tiles::kForward;
  constexpr int kTile = kKeys * Tiles::kStride;
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  extern __shared__ uint4 shared[];
  auto* q = reinterpret_cast<BFloat16*>(shared);
  BFloat16* others = q + Tiles::kRows * Tiles::kStride;  // keys and values, twice
  const Place place = place_of_block(p, Tiles::kRows, true);
  const auto first = static_cast<int>(place.first);
  const Lane<width> me;
  const auto load = [&](int key, int buffer) {
    BFloat16* k = others + 2 * buffer * kTile;
    copy_tile<width, kKeys>(p, p.qkv + place.in_k, p.W, key, k);
    copy_tile<width, kKeys>(p, p.qkv + place.in_v, p.W, key, k + kTile);
  };

  copy_tile<width, Tiles::kRows>(p, p.qkv + place.in_q, p.W, first, q);
  load(0, 0);
  wait_for_copies();
  __syncthreads();
  const InRegisters<width> queries{InTile<width>(me, q)};
  Sums<width, width / 8> out = {};
  OfRows<width> largest;
  OfRows<width> sum = {};  // of this lane's columns
#pragma unroll
  for (int band = 0; band < Tiles::kBands; ++band) {
    largest[band][0] = largest[band][1] = kNone;
  }
  const int last = last_key(p, me, first);
  const auto end = static_cast<int>(p.keys_of(place.first + Tiles::kRows));
  for_each_tile(0, end, kKeys, load, [&](int key, int buffer) {
    if (key > last) {
      return;
    }
    const BFloat16* k = others + 2 * buffer * kTile;
    Sums<width, kKeys / 8> scores;
    multiply_rows(me, queries, k, scores);
    if (!p.sees(first + me.warp_row, key + kKeys - 1)) {  // Not every row sees every key.
      for_each(scores, [&](float& score, int band, int n, int e) {
        const bool seen = p.sees(first + me.row(band, e), key + n * kColumns + me.column(e));
        score = seen ? score : kNone;
      });
    }
    take_exponentials<width>(p.scale * kLog2E, scores, largest, sum, out);
    add_product(me, scores, k + kTile, out);
  });
#pragma unroll
  for (int band = 0; band < Tiles::kBands; ++band) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float all = row_sum(sum[band][half]);
      const int query = first + me.row(band, 2 * half);
      if (me.t == 0 && query < p.T) {
        log_sum[place.head * p.T + query] = largest[band][half] * p.scale + logf(all);
      }
      sum[band][half] = 1.0f / all;
    }
  }
  for_each(out, [&](float& value, int band, int, int e) { value *= sum[band][e / 2]; });
  write_rows(p, me, out, first, y + place.in_y + place.first * p.C, p.C);
}

// -- backward -----------------------------------------------------------------------

/// What the forward wrote; the one that it did not is null.
struct Output {
  const float* wide;
  const BFloat16* narrow;

  __device__ float at(std::int64_t i) const { return wide ? wide[i] : to_float(narrow[i]); }
};

/// delta += of each row the sum of dy y, dy as the products read it.
template <int width>
__device__ void add_rows(const Problem& p,
                         const Lane<width>& me,
                         const InRegisters<width>& dy,
                         const Output& y,
                         const Place& place,
                         OfRows<width>& delta) {
#pragma unroll
  for (int k = 0; k < width / 16; ++k) {
#pragma unroll
    for (int band = 0; band < Tiling<width>::kBands; ++band) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::int64_t query = place.first + me.row(band, i % 2 * 2);
        const std::uint32_t pair = dy.columns[k][band][i];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int c = 16 * k + i / 2 * 8 + me.column(e);
          if (query < p.T && c < p.D) {
            const BFloat16 factor{static_cast<std::uint16_t>(pair >> 16 * e)};
            delta[band][i % 2] += to_float(factor) * y.at(place.in_y + query * p.C + c);
          }
        }
      }
    }
  }
}

/// The gradient by q, for one tile of queries, and their delta.
template <int width, class Out>
__global__ void __launch_bounds__(kThreads)
    query_gradient_kernel(const __grid_constant__ Problem p, Output y, float* to_delta, Out* dqkv) {
  using Tiles = Tiling<width>;
  constexpr int kKeys = Tiles::kBackward;
  constexpr int kTile = kKeys * Tiles::kStride;
  extern __shared__ uint4 shared[];
  auto* q = reinterpret_cast<BFloat16*>(shared);
  BFloat16* dy = q + Tiles::kRows * Tiles::kStride;
  BFloat16* others = dy + Tiles::kRows * Tiles::kStride;  // keys and values, twice
  const Place place = place_of_block(p, Tiles::kRows, true);
  const auto first = static_cast<int>(place.first);
  const Lane<width> me;
  const auto load = [&](int key, int buffer) {
    BFloat16* k = others + 2 * buffer * kTile;
    copy_tile<width, kKeys>(p, p.qkv + place.in_k, p.W, key, k);
    copy_tile<width, kKeys>(p, p.qkv + place.in_v, p.W, key, k + kTile);
  };

  copy_tile<width, Tiles::kRows>(p, p.qkv + place.in_q, p.W, first, q);
  copy_tile<width, Tiles::kRows>(p, p.dy + place.in_y, p.C, first, dy);
  load(0, 0);
  wait_for_copies();
  __syncthreads();
  const InTile<width> queries(me, q);
  const InRegisters<width> gradients{InTile<width>(me, dy)};
  OfRows<width> powers;  // of 2: log_sum, negative
  OfRows<width> delta = {};
  add_rows(p, me, gradients, y, place, delta);
#pragma unroll
  for (int band = 0; band < Tiles::kBands; ++band) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = first + me.row(band, 2 * half);
      const std::int64_t at = place.head * p.T + query;
      delta[band][half] = row_sum(delta[band][half]);
      powers[band][half] = query < p.T ? -p.log_sum[at] * kLog2E : 0.0f;
      if (me.t == 0 && query < p.T) {
        to_delta[at] = delta[band][half];
      }
    }
  }
  Sums<width, width / 8> out = {};
  const int last = last_key(p, me, first);
  const auto end = static_cast<int>(p.keys_of(place.first + Tiles::kRows));
  for_each_tile(0, end, kKeys, load, [&](int tile, int buffer) {
#pragma unroll 1
    for (int part = 0; part < kKeys; part += Tiles::kAtOnce) {
      const int key = tile + part;
      if (key > last) {
        return;
      }
      const BFloat16* k = others + 2 * buffer * kTile + part * Tiles::kStride;
      Sums<width, Tiles::kAtOnce / 8> scores;
      Sums<width, Tiles::kAtOnce / 8> dp;
      multiply_rows(me, queries, k, scores);
      multiply_rows(me, gradients, k + kTile, dp);
      for_each(scores, [&](float& score, int band, int n, int e) {
        const float power = fmaf(score, p.scale * kLog2E, powers[band][e / 2]);
        score = exp2_quickly(power) * (dp[band][n][e] - delta[band][e / 2]);
      });
      if (!p.sees(first + me.warp_row,
                  key + Tiles::kAtOnce - 1)) {  // Not every row sees every key.
        for_each(scores, [&](float& score, int band, int n, int e) {
          const bool seen = p.sees(first + me.row(band, e), key + n * kColumns + me.column(e));
          score = seen ? score : 0.0f;
        });
      }
      add_product(me, scores, k, out);
    }
  });
  for_each(out, [&](float& value, int, int, int) { value *= p.scale; });
  write_rows(p, me, out, first, dqkv + place.in_q + place.first * p.W, p.W);
}

/// The gradients by k and v, for one tile of keys. A warp's scores are (keys, queries) here. A query behind the last is
/// zeros, dy, log_sum and delta too, and adds nothing.
template <int width, class Out>
__global__ void __launch_bounds__(kThreads)
    key_gradient_kernel(const __grid_constant__ Problem p, Out* dqkv) {
  using Tiles = Tiling<width>;
  constexpr int kQueries = Tiles::kBackward;
  constexpr int kTile = kQueries * Tiles::kStride;
  extern __shared__ uint4 shared[];
  auto* k = reinterpret_cast<BFloat16*>(shared);
  BFloat16* v = k + Tiles::kRows * Tiles::kStride;
  BFloat16* others = v + Tiles::kRows * Tiles::kStride;  // queries and dy, twice
  auto* of_queries =
      reinterpret_cast<float*>(others + 4 * kTile);  // their log_sum and delta, twice
  const Place place = place_of_block(p, Tiles::kRows, false);
  Place of = place;  // the head whose queries are read
  const auto first = static_cast<int>(place.first);
  const Lane<width> me;
  const auto load = [&](int query, int buffer) {
    BFloat16* q = others + 2 * buffer * kTile;
    copy_tile<width, kQueries>(p, p.qkv + of.in_q, p.W, query, q);
    copy_tile<width, kQueries>(p, p.dy + of.in_y, p.C, query, q + kTile);
    static_assert(2 * kQueries <= kThreads);
    if (const int i = static_cast<int>(threadIdx.x); i < 2 * kQueries) {
      const float* from = (i < kQueries ? p.log_sum : p.delta) + of.head * p.T;
      const int row = query + i % kQueries;
      const bool inside = row < p.T;
      copy_async<4>(of_queries + 2 * buffer * kQueries + i, inside ? from + row : from, inside);
    }
  };

  copy_tile<width, Tiles::kRows>(p, p.qkv + place.in_k, p.W, first, k);
  copy_tile<width, Tiles::kRows>(p, p.qkv + place.in_v, p.W, first, v);
  const int begin = p.causal ? first : 0;
  load(begin, 0);
  const InTile<width> keys(me, k);
  const InTile<width> values(me, v);
  Sums<width, width / 8> dk = {};
  Sums<width, width / 8> dv = {};
  const int last = last_row(p, me, first);
  const auto T = static_cast<int>(p.T);
  const auto compute = [&](int tile, int buffer) {
#pragma unroll 1
    for (int part = 0; part < kQueries; part += Tiles::kAtOnce) {
      const int query = tile + part;
      if (query >= T || last < 0 || !p.sees(query + Tiles::kAtOnce - 1, first + me.warp_row)) {
        continue;
      }
      const BFloat16* q = others + 2 * buffer * kTile + part * Tiles::kStride;
      const float* log_sum = of_queries + 2 * buffer * kQueries + part + me.column(0);
      Sums<width, Tiles::kAtOnce / 8> probabilities;
      Sums<width, Tiles::kAtOnce / 8> gradients;
      multiply_rows(me, keys, q, probabilities);
      multiply_rows(me, values, q + kTile, gradients);
#pragma unroll
      for (int n = 0; n < Tiles::kAtOnce / 8; ++n) {
        const Pair logs = *reinterpret_cast<const Pair*>(log_sum + n * kColumns);
        const Pair deltas = *reinterpret_cast<const Pair*>(log_sum + kQueries + n * kColumns);
#pragma unroll
        for (int band = 0; band < Tiles::kBands; ++band) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float& probability = probabilities[band][n][e];
            const float power = (e % 2 == 0 ? logs.low : logs.high) * -kLog2E;
            probability = exp2_quickly(fmaf(probability, p.scale * kLog2E, power));
            gradients[band][n][e] -= e % 2 == 0 ? deltas.low : deltas.high;
            gradients[band][n][e] *= probability;
          }
        }
      }
      if (p.causal && query < last) {  // Not every query sees every key.
        for_each(probabilities, [&](float& probability, int band, int n, int e) {
          const bool seen = first + me.row(band, e) <= query + n * kColumns + me.column(e);
          probability = seen ? probability : 0.0f;
          gradients[band][n][e] = seen ? gradients[band][n][e] : 0.0f;
        });
      }
      add_product(me, probabilities, q + kTile, dv);
      add_product(me, gradients, q, dk);
    }
  };
#pragma unroll 1
  for (std::int64_t i = 0; i < p.group; ++i) {
    if (i > 0) {
      of = place.of_group(p, i);
      __syncthreads();  // The last head's queries have been read.
      load(begin, 0);
    }
    for_each_tile(begin, T, kQueries, load, compute);
  }
  for_each(dk, [&](float& value, int, int, int) { value *= p.scale; });
  Out* to = dqkv + place.first * p.W;
  write_rows(p, me, dk, first, to + place.in_k, p.W);
  write_rows(p, me, dv, first, to + place.in_v, p.W);
}

// -- launches -----------------------------------------------------------------------

template <class T>
bool in_sixteens(const T* x) {
  return reinterpret_cast<std::uintptr_t>(x) % 16 == 0;
}

Problem problem_of(const AttentionForm& form, const Tensor& qkv) {
  const auto p = attention_problem<BFloat16>(form, qkv);
  return {p, p.D % 8 == 0 && in_sixteens(p.qkv)};
}

/// f(x's data), float or BFloat16.
template <class F>
void with_data(const Tensor& x, F f) {
  if (x.type() == DType::bfloat16) {
    f(x.data<BFloat16>());
  } else {
    f(x.data<float>());
  }
}

}  // namespace

void attention_forward_bf16(Stream& stream,
                            const AttentionForm& form,
                            const Tensor& qkv,
                            const Tensor& y,
                            const Tensor& log_sum) {
  const Tensor read = operand(stream, qkv);
  const Backend::State& state = activate(stream);
  Problem p = problem_of(form, read);
  with_data(y, [&]<class Out>(Out* to) {
    p.in_eights = p.in_eights && in_sixteens(to);
    with_width(p.D, [&]<int width>() {
      using Tiles = Tiling<width>;
      constexpr int kBytes = Tiles::bytes(Tiles::kRows + 4 * Tiles::kForward);  // at most 85 KiB
      launch_attention(state,
                       forward_kernel<width, Out>,
                       p.heads,
                       Tiles::kRows,
                       kThreads,
                       kBytes,
                       p,
                       to,
                       log_sum.data<float>());
    });
  });
}

void attention_backward_bf16(Stream& stream, const AttentionGradient& a) {
  const Tensor qkv = operand(stream, a.qkv);
  const Tensor dy = operand(stream, a.dy);
  const Tensor delta = stream.allocate(a.log_sum.shape());
  const Backend::State& state = activate(stream);
  Problem p = problem_of(a.form, qkv);
  p.dy = dy.data<BFloat16>();
  p.log_sum = a.log_sum.data<float>();
  p.delta = delta.data<float>();
  Output y{};
  if (a.y.type() == DType::bfloat16) {
    y.narrow = a.y.data<BFloat16>();
  } else {
    y.wide = a.y.data<float>();
  }
  with_data(a.dqkv, [&]<class Out>(Out* to) {
    p.in_eights = p.in_eights && in_sixteens(p.dy) && in_sixteens(to);
    with_width(p.D, [&]<int width>() {
      using Tiles = Tiling<width>;
      constexpr int kTiles =
          Tiles::bytes(2 * Tiles::kRows + 4 * Tiles::kBackward);  // at most 72 KiB
      constexpr int kOfQueries = 4 * Tiles::kBackward * static_cast<int>(sizeof(float));
      launch_attention(state,
                       query_gradient_kernel<width, Out>,
                       p.heads,
                       Tiles::kRows,
                       kThreads,
                       kTiles,
                       p,
                       y,
                       delta.data<float>(),
                       to);
      launch_attention(state,
                       key_gradient_kernel<width, Out>,
                       p.heads / p.group,
                       Tiles::kRows,
                       kThreads,
                       kTiles + kOfQueries,
                       p,
                       to);
    });
  });
}

}  // namespace troupe::cuda
