// What the two sets of attention kernels share: attention.cu multiplies in float32, attention_bf16.cu with Tensor Cores.
#pragma once

#include "kernels/attention.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/cuda/state.hpp"

#include <cmath>
#include <cstdint>

namespace troupe::cuda {

/// q, k, v and dy are of Element.
template <class Element>
struct AttentionProblem {
  std::int64_t B;
  std::int64_t T;
  std::int64_t C;
  std::int64_t heads;
  std::int64_t group;  // heads that share keys and values
  std::int64_t D;      // C / heads
  std::int64_t W;      // columns of qkv, C + 2 C / group
  bool causal;
  float scale;           // 1 / sqrt(D)
  const Element* qkv;    // (B, T, W)
  const Element* dy;     // (B, T, C); the backward's
  const float* log_sum;  // (B, heads, T); the backward's
  const float* delta;    // (B, heads, T): of each row the sum of dy y; the backward's

  __device__ bool sees(std::int64_t query, std::int64_t key) const {
    return key <= (causal ? query : T - 1);
  }

  /// Behind the last key that queries before `end` see.
  __device__ std::int64_t keys_of(std::int64_t end) const { return causal && end < T ? end : T; }
};

template <class Element>
AttentionProblem<Element> attention_problem(const AttentionForm& form, const Tensor& qkv) {
  const std::int64_t W = qkv.shape()[2];
  const std::int64_t D = W / (form.heads + 2 * form.key_heads());
  return {.B = qkv.shape()[0],
          .T = qkv.shape()[1],
          .C = form.heads * D,
          .heads = form.heads,
          .group = form.heads / form.key_heads(),
          .D = D,
          .W = W,
          .causal = form.causal,
          .scale = 1.0f / std::sqrt(static_cast<float>(D)),
          .qkv = qkv.data<Element>(),
          .dy = nullptr,
          .log_sum = nullptr,
          .delta = nullptr};
}

/// The block's tile, of a head and of the keys and values that it reads; of keys, the first head that reads them.
struct AttentionPlace {
  std::int64_t head;   // of all B heads
  std::int64_t first;  // row of the tile
  std::int64_t in_q;   // of the head's column 0 in q, row 0 of qkv
  std::int64_t in_k;   // the same of its keys,
  std::int64_t in_v;   // and values
  std::int64_t in_y;   // the same in y

  /// The head `i` further, of those that share keys.
  template <class Problem>
  __device__ AttentionPlace of_group(const Problem& p, std::int64_t i) const {
    return {head + i, first, in_q + i * p.D, in_k, in_v, in_y + i * p.D};
  }
};

/// Blocks begin in their order. The longest come first, so that they do not run alone at the end: of queries the last
/// tile of every head, of keys the first.
template <class Problem>
__device__ inline AttentionPlace place_of_block(const Problem& p,
                                                std::int64_t tile_rows,
                                                bool of_queries) {
  const std::int64_t together = of_queries ? 1 : p.group;
  const std::int64_t heads = p.B * p.heads / together;
  const std::int64_t tiles = gridDim.x / heads;
  const std::int64_t head = blockIdx.x % heads * together;
  const std::int64_t before = blockIdx.x / heads;
  const std::int64_t first = (of_queries ? tiles - 1 - before : before) * tile_rows;
  const std::int64_t b = head / p.heads;
  const std::int64_t column = head % p.heads * p.D;
  const std::int64_t in_k = b * p.T * p.W + p.C + head % p.heads / p.group * p.D;
  return {
      head, first, b * p.T * p.W + column, in_k, in_k + (p.W - p.C) / 2, b * p.T * p.C + column};
}

/// f.operator()<width>() with the narrowest tile that holds D columns.
template <class F>
void with_width(std::int64_t D, F f) {
  if (D <= 16) {
    f.template operator()<16>();
  } else if (D <= 32) {
    f.template operator()<32>();
  } else if (D <= 64) {
    f.template operator()<64>();
  } else {
    f.template operator()<128>();
  }
}

/// One block of `threads` for each tile of `tile_rows` of each of B `heads`, with `shared_bytes` of shared memory: more than 48
/// KiB of it must be asked for.
template <class Problem, class... Parameters, class... Arguments>
void launch_attention(const Backend::State& state,
                      void (*kernel)(Problem, Parameters...),
                      std::int64_t heads,
                      std::int64_t tile_rows,
                      int threads,
                      int shared_bytes,
                      const Problem& p,
                      Arguments... arguments) {
  TROUPE_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  const std::int64_t tiles = (p.T + tile_rows - 1) / tile_rows;
  kernel<<<static_cast<unsigned>(p.B * heads * tiles),
           static_cast<unsigned>(threads),
           static_cast<std::size_t>(shared_bytes),
           state.stream.get()>>>(p, arguments...);
  TROUPE_CUDA_CHECK(cudaGetLastError());
}

// attention_bf16.cu: the ops of kernels/attention.hpp on a stream in bf16.
void attention_forward_bf16(Stream& stream,
                            const AttentionForm& form,
                            const Tensor& qkv,
                            const Tensor& y,
                            const Tensor& log_sum);
void attention_backward_bf16(Stream& stream, const AttentionGradient& arguments);

}  // namespace troupe::cuda
