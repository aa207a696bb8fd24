// Element-wise kernels: one thread handles four neighbours with 16-byte accesses where every
// pointer allows it.
#pragma once

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/state.hpp"
#include "kernels/functors/bfloat16.hpp"

#include <algorithm>
#include <cstdint>

namespace troupe::cuda {

constexpr int kElementwiseBlock = 256;
constexpr std::int64_t kElementwiseBlocksMax = 4096;
constexpr int kPackWidth = 4;

/// f.operator()<T>() with the type of x, float or BFloat16.
template <class F>
void with_type_of(const Tensor& x, F f) {
  if (x.type() == DType::bfloat16) {
    f.template operator()<BFloat16>();
  } else {
    f.template operator()<float>();
  }
}

/// `width` neighbouring elements, moved by one instruction.
template <class T, int width>
struct alignas(width * sizeof(T)) Pack {
  T lane[width];
};

template <int width, class T>
__device__ Pack<T, width> load(const T* x, std::int64_t i) {
  return *reinterpret_cast<const Pack<T, width>*>(x + i);
}

template <int width, class T>
__device__ void store(T* x, std::int64_t i, const Pack<T, width>& values) {
  *reinterpret_cast<Pack<T, width>*>(x + i) = values;
}

/// Whether packs can be read and written at all of these; null is no obstacle.
template <int width = kPackWidth, class... Ts>
bool packable(const Ts*... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) % sizeof(Pack<Ts, width>) == 0) && ...);
}

/// f.at<width>(i) for packs [i, i + width) that cover [0, n). Grid-stride, so that any n fits any
/// grid; the rest of less than a pack goes one by one.
template <bool packed, class F>
__global__ void __launch_bounds__(kElementwiseBlock)
    for_each_index_kernel(std::int64_t n, const __grid_constant__ F f) {
  const std::int64_t first = std::int64_t{blockIdx.x} * kElementwiseBlock + threadIdx.x;
  const std::int64_t step = std::int64_t{gridDim.x} * kElementwiseBlock;
  const std::int64_t packs = packed ? n / kPackWidth : 0;
  for (std::int64_t pack = first; pack < packs; pack += step) {
    f.template at<kPackWidth>(pack * kPackWidth);
  }
  for (std::int64_t i = packs * kPackWidth + first; i < n; i += step) {
    f.template at<1>(i);
  }
}

/// Launches `f` over [0, n); returns before it has run. `packed` as packable() says.
template <class F>
void for_each_index(const Backend::State& state, std::int64_t n, bool packed, const F& f) {
  if (n == 0) {
    return;  // A grid of zero blocks is a launch error.
  }
  const std::int64_t in_a_block = std::int64_t{kElementwiseBlock} * (packed ? kPackWidth : 1);
  const std::int64_t blocks = std::min((n + in_a_block - 1) / in_a_block, kElementwiseBlocksMax);
  const auto launch = packed ? for_each_index_kernel<true, F> : for_each_index_kernel<false, F>;
  launch<<<static_cast<unsigned>(blocks), kElementwiseBlock, 0, state.stream.get()>>>(n, f);
  TROUPE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace troupe::cuda
