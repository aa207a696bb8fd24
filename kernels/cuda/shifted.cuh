// Packs of 16 bytes that begin anywhere, by the aligned ones around them: what is read beside them lies in the same 16 bytes as one
// of their elements, so in the same buffer.
#pragma once

#include "kernels/cuda/elementwise.cuh"

#include <cstdint>

namespace troupe::cuda {

/// The `words`th and the three words behind it of two aligned packs of 16 bytes; with `half`, half a word further.
template <int words, bool half>
struct Shifted {
  __device__ static Pack<std::uint32_t, 4> load_from(const std::uint32_t* aligned) {
    const Pack<std::uint32_t, 4> low = load<4>(aligned, 0);
    if constexpr (words == 0 && !half) {
      return low;
    }
    const Pack<std::uint32_t, 4> high = load<4>(aligned, 4);
    const auto word = [&](int k) {
      return k < 4 ? low.lane[k] : high.lane[k - 4];
    };
    Pack<std::uint32_t, 4> found;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      found.lane[k] = half ? word(words + k) >> 16 | word(words + k + 1) << 16 : word(words + k);
    }
    return found;
  }
};

/// f.operator()<Shifted>() for an address that begins so many bytes beyond a multiple of 16.
template <class F>
__device__ void with_shift(unsigned beyond, F f) {
  const auto with_words = [&]<bool half>() {
    switch (beyond / 4) {
      case 0:
        return f.template operator()<Shifted<0, half>>();
      case 1:
        return f.template operator()<Shifted<1, half>>();
      case 2:
        return f.template operator()<Shifted<2, half>>();
      default:
        return f.template operator()<Shifted<3, half>>();
    }
  };
  if (beyond % 4 == 0) {
    with_words.template operator()<false>();
  } else {
    with_words.template operator()<true>();
  }
}

/// f(k, the k-th pack of 16 bytes behind `begin`) for a thread's share of them, four read before the first of them is handed on.
template <int threads, class T, class F>
__device__ void for_each_shifted_pack(const T* begin, int packs, int thread, F f) {
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const auto* const aligned = reinterpret_cast<const std::uint32_t*>(address / 16 * 16);
  with_shift(address % 16, [&]<class By>() {
    constexpr int kAtOnce = 4;
    int pack = thread;
    for (; pack + (kAtOnce - 1) * threads < packs; pack += kAtOnce * threads) {
      Pack<std::uint32_t, 4> words[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        words[k] = By::load_from(aligned + 4 * (pack + k * threads));
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        f(pack + k * threads, words[k]);
      }
    }
    for (; pack < packs; pack += threads) {
      f(pack, By::load_from(aligned + 4 * pack));
    }
  });
}

}  // namespace troupe::cuda
