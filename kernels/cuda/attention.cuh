// What the two sets of attention kernels share: attention.cu multiplies in float32, attention_bf16.cu with Tensor Cores.
#pragma once

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/state.hpp"

#include <cstdint>

namespace troupe::cuda {

struct AttentionProblem {
  std::int64_t B;
  std::int64_t T;
  std::int64_t C;
  std::int64_t heads;
  std::int64_t D;        // C / heads
  float scale;           // 1 / sqrt(D)
  const float* qkv;      // (B, T, 3C)
  const float* y;        // (B, T, C); the backward's
  const float* log_sum;  // (B, heads, T); the backward's
  const float* dy;       // (B, T, C); the backward's
  const float* delta;    // (B, heads, T): of each row the sum of dy y; the backward's
  bool in_fours;  // C and D are multiples of 4, and qkv and dy begin at multiples of 16 bytes
};

/// The block's tile: the blocks of one head follow each other.
struct AttentionPlace {
  std::int64_t head;    // of all B heads
  std::int64_t first;   // row of the tile
  std::int64_t in_qkv;  // of the head's column 0 in q, row 0
  std::int64_t in_y;    // the same in y
};

__device__ inline AttentionPlace place_of_block(const AttentionProblem& p, std::int64_t tile_rows) {
  const std::int64_t tiles = (p.T + tile_rows - 1) / tile_rows;
  const std::int64_t head = blockIdx.x / tiles;
  const std::int64_t b = head / p.heads;
  const std::int64_t column = head % p.heads * p.D;
  return {head, blockIdx.x % tiles * tile_rows, b * p.T * 3 * p.C + column, b * p.T * p.C + column};
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

/// One block of `threads` for each tile of `tile_rows` of each head, with `shared_bytes` of shared memory: more than 48
/// KiB of it must be asked for.
template <class... Parameters, class... Arguments>
void launch_attention(const Backend::State& state,
                      void (*kernel)(AttentionProblem, Parameters...),
                      std::int64_t tile_rows,
                      int threads,
                      int shared_bytes,
                      const AttentionProblem& p,
                      Arguments... arguments) {
  TROUPE_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  const std::int64_t tiles = (p.T + tile_rows - 1) / tile_rows;
  kernel<<<static_cast<unsigned>(p.B * p.heads * tiles),
           static_cast<unsigned>(threads),
           static_cast<std::size_t>(shared_bytes),
           state.stream.get()>>>(p, arguments...);
  TROUPE_CUDA_CHECK(cudaGetLastError());
}

// attention_bf16.cu: what attention.cu's kernels do, with products of bfloat16. Arguments as there; the backward's
// problem is complete, delta included.
void attention_forward_bf16(const Backend::State& state,
                            const AttentionProblem& p,
                            float* y,
                            float* log_sum);
void attention_backward_bf16(const Backend::State& state, const AttentionProblem& p, float* dqkv);

}  // namespace troupe::cuda
