// Element-wise kernels: one thread handles neighbours with 16-byte accesses where every pointer allows it, four of float32 and
// eight where all tensors are bfloat16.
#pragma once

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/state.hpp"
#include "kernels/functors/bfloat16.hpp"

#include <algorithm>
#include <bit>
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

/// `width` neighbouring elements, moved by one instruction for each 16 bytes.
template <class T, int width>
struct alignas(width * sizeof(T) < 16 ? width * sizeof(T) : 16) Pack {
  T lane[width];
};

template <int width, class T>
__device__ Pack<T, width> load(const T* x, std::int64_t i) {
  return *reinterpret_cast<const Pack<T, width>*>(x + i);
}

template <int width, class T>
__device__ void store(T* x, std::int64_t i, const Pack<T, width>& values) {
#ifdef __CUDA_ARCH__
  // One instruction of 16 bytes: eight halves that to_bfloat16 makes the compiler would write two by two.
  if constexpr (sizeof(values) == 16) {
    const auto words = std::bit_cast<Pack<std::uint32_t, 4>>(values);
    asm volatile(
        "st.v4.b32 [%0], {%1, %2, %3, %4};"
        :
        : "l"(x + i), "r"(words.lane[0]), "r"(words.lane[1]), "r"(words.lane[2]), "r"(words.lane[3])
        : "memory");
    return;
  }
#endif
  *reinterpret_cast<Pack<T, width>*>(x + i) = values;
}

/// Row and column of element i in a matrix of C columns.
struct Place {
  std::int64_t row;
  std::int64_t column;

  __device__ Place(std::int64_t i, std::int64_t C) {
    // A division of 64 bits takes as long as many passes have for an element altogether.
    if ((i | C) >> 32 == 0) {
      row = static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(C);
    } else {
      row = i / C;
    }
    column = i - row * C;
  }
};

/// How many neighbours a thread takes at once: `widest`, kPackWidth or 1.
template <int widest>
struct PackWidth {
  static constexpr int kWidest = widest;
  int value;

  /// The same where every row is whole packs, else less.
  PackWidth dividing(std::int64_t columns) const {
    return {columns % value == 0                              ? value
            : value > kPackWidth && columns % kPackWidth == 0 ? kPackWidth
                                                              : 1};
  }
};

/// Whether packs of `width` can be read and written at all of these; null is no obstacle.
template <int width = kPackWidth, class... Ts>
bool packable(const Ts*... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) % alignof(Pack<Ts, width>) == 0) && ...);
}

/// The widest packs that can be read and written at all of these.
template <class... Ts>
auto pack_width(const Ts*... pointers) {
  constexpr bool halves = ((sizeof(Ts) == sizeof(BFloat16)) && ...);
  constexpr int kWidest = halves ? 2 * kPackWidth : kPackWidth;
  return PackWidth<kWidest>{packable<kWidest>(pointers...) ? kWidest
                            : packable(pointers...)        ? kPackWidth
                                                           : 1};
}

/// f.operator()<w>() with the width.
template <int widest, class F>
void with_width(PackWidth<widest> width, F f) {
  if constexpr (widest > kPackWidth) {
    if (width.value == widest) {
      return f.template operator()<widest>();
    }
  }
  if constexpr (widest >= kPackWidth) {
    if (width.value >= kPackWidth) {
      return f.template operator()<kPackWidth>();
    }
  }
  f.template operator()<1>();
}

/// f.at<width>(i) for packs [i, i + width) that cover [0, n). Grid-stride, so that any n fits any
/// grid; the rest of less than a pack goes one by one.
template <int width, class F>
__global__ void __launch_bounds__(kElementwiseBlock)
    for_each_index_kernel(std::int64_t n, const __grid_constant__ F f) {
  const std::int64_t first = std::int64_t{blockIdx.x} * kElementwiseBlock + threadIdx.x;
  const std::int64_t step = std::int64_t{gridDim.x} * kElementwiseBlock;
  const std::int64_t packs = n / width;
  for (std::int64_t pack = first; pack < packs; pack += step) {
    f.template at<width>(pack * width);
  }
  if constexpr (width > 1) {
    for (std::int64_t i = packs * width + first; i < n; i += step) {
      f.template at<1>(i);
    }
  }
}

template <int width, class F>
void launch_for_each_index(const Backend::State& state, std::int64_t n, const F& f) {
  const std::int64_t in_a_block = std::int64_t{kElementwiseBlock} * width;
  const std::int64_t blocks = std::min((n + in_a_block - 1) / in_a_block, kElementwiseBlocksMax);
  for_each_index_kernel<width>
      <<<static_cast<unsigned>(blocks), kElementwiseBlock, 0, state.stream.get()>>>(n, f);
  TROUPE_CUDA_CHECK(cudaGetLastError());
}

/// Launches `f` over [0, n); returns before it has run. `width` as pack_width() says.
template <int widest, class F>
void for_each_index(const Backend::State& state,
                    std::int64_t n,
                    PackWidth<widest> width,
                    const F& f) {
  if (n == 0) {
    return;  // A grid of zero blocks is a launch error.
  }
  with_width(width, [&]<int w>() { launch_for_each_index<w>(state, n, f); });
}

/// One by one.
template <class F>
void for_each_index(const Backend::State& state, std::int64_t n, const F& f) {
  for_each_index(state, n, PackWidth<1>{1}, f);
}

}  // namespace troupe::cuda
