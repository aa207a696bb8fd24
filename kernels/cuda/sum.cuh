// Sums in double whose order of additions depends on the number of terms alone: not on the GPU, not
// on where in memory the terms lie, not on timing. Each block sums its share, and one warp sums the
// blocks' sums.
#pragma once

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/state.hpp"
#include "kernels/hd.hpp"
#include "kernels/update.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>

namespace troupe::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kSumBlock = 256;      // threads
constexpr int kSumBlocksMax = 512;  // a part
constexpr int kPartsMax = 64;       // a launch

/// What a few terms are added up in before that goes to a double: a float where one of the tensors has eight bits of significance,
/// as a multiprocessor makes doubles of floats at an eighth of its rate.
template <class... Ts>
using NumberOf = std::conditional_t<((sizeof(Ts) < sizeof(float)) || ...), float, double>;

/// Of the parts of one launch; travels as a kernel argument.
struct PartTable {
  Part part[kPartsMax];
};

struct BlockCounts {
  int of[kPartsMax];
};

/// The partial sums of a launch, at the workspace's beginning.
constexpr std::size_t kPartialsMax = std::size_t{kPartsMax} * kSumBlocksMax;
static_assert((kPartialsMax + 1) * sizeof(double) <= kWorkspaceBytes);

/// How many blocks sum `size` terms: eight terms a thread, then more.
TROUPE_HD inline int sum_blocks(std::int64_t size) {
  const std::int64_t wanted = (size + 8 * kSumBlock - 1) / (8 * kSumBlock);
  return wanted < 1 ? 1 : wanted > kSumBlocksMax ? kSumBlocksMax : static_cast<int>(wanted);
}

/// In lane 0. All lanes of the warp call.
__device__ inline double warp_sum(double value) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value += __shfl_down_sync(kAllLanes, value, distance);
  }
  return value;
}

/// In thread 0. All kSumBlock threads of the block call; again as often as they like.
__device__ inline double block_sum(double value) {
  __shared__ double of_warp[kSumBlock / kWarp];
  value = warp_sum(value);
  if (threadIdx.x % kWarp == 0) {
    of_warp[threadIdx.x / kWarp] = value;
  }
  __syncthreads();
  double sum = 0;
  if (threadIdx.x == 0) {
    for (const double warp : of_warp) {
      sum += warp;
    }
  }
  __syncthreads();
  return sum;
}

/// partial[y, b] = block b's share of the sum of term(i) over part y. Shape: partial (parts,
/// kSumBlocksMax).
template <class Term>
__global__ void __launch_bounds__(kSumBlock)
    sum_terms_kernel(const __grid_constant__ Term term,
                     const __grid_constant__ PartTable parts,
                     double* partial) {
  const Part part = parts.part[blockIdx.y];
  const int blocks = sum_blocks(part.size);
  if (static_cast<int>(blockIdx.x) >= blocks) {
    return;  // the whole block: another part of the launch is longer
  }
  const std::int64_t step = std::int64_t{blocks} * kSumBlock;
  double sum = 0;
#pragma unroll 4
  for (std::int64_t i = std::int64_t{blockIdx.x} * kSumBlock + threadIdx.x; i < part.size;
       i += step) {
    sum += term(part.offset + i);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) {
    partial[std::int64_t{blockIdx.y} * kSumBlocksMax + blockIdx.x] = sum;
  }
}

/// out[y] = the sum of partial[y, 0..counts.of[y]). Shapes: partial (parts, kSumBlocksMax), out
/// (parts).
void sum_partials(const Backend::State& state,
                  const double* partial,
                  const BlockCounts& counts,
                  int parts,
                  double* out);

/// out[y] = the sum of term(i) over part y. `term` is called once for each i. Uses the workspace.
template <class Term>
void sum_terms(const Backend::State& state,
               const Term& term,
               std::span<const Part> parts,
               double* out) {
  double* partial = state.workspace<double>();
  while (!parts.empty()) {
    const int count = static_cast<int>(std::min<std::size_t>(parts.size(), kPartsMax));
    PartTable table{};
    BlockCounts counts{};
    int blocks = 1;
    for (int y = 0; y < count; ++y) {
      table.part[y] = parts[static_cast<std::size_t>(y)];
      counts.of[y] = sum_blocks(table.part[y].size);
      blocks = std::max(blocks, counts.of[y]);
    }
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(count));
    sum_terms_kernel<<<grid, kSumBlock, 0, state.stream.get()>>>(term, table, partial);
    TROUPE_CUDA_CHECK(cudaGetLastError());
    sum_partials(state, partial, counts, count, out);
    parts = parts.subspan(static_cast<std::size_t>(count));
    out += count;
  }
}

}  // namespace troupe::cuda
