// kernels/cuda/mma.cuh for a device that the CPU plays: what PTX says of these instructions, by exchanges of lanes.
#pragma once

#include "kernels/functors/bfloat16.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace troupe::cuda {

/// d += a b.
inline void multiply_add(float (&d)[4],
                         const std::uint32_t (&a)[4],
                         std::uint32_t b0,
                         std::uint32_t b1) {
  struct Held {
    std::uint32_t a[4];
    std::uint32_t b[2];
  };

  const Held mine{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const device_on_cpu::Exchange all(
      0xffffffffu, &mine, sizeof mine, device_on_cpu::Place::current());
  const auto half = [](std::uint32_t pair, int k) {
    return to_float(BFloat16{static_cast<std::uint16_t>(k % 2 == 0 ? pair : pair >> 16)});
  };
  const int g = device_on_cpu::lane() / 4;
  const int t = device_on_cpu::lane() % 4;
  for (int k = 0; k < 16; ++k) {
    const int lane = k % 8 / 2;  // of the four that share a row of a, or a column of b
    const Held left = all.of<Held>(4 * g + lane);
    for (int e = 0; e < 4; ++e) {
      const Held right = all.of<Held>(4 * (2 * t + e % 2) + lane);
      d[e] += half(left.a[e / 2 + k / 8 * 2], k) * half(right.b[k / 8], k);
    }
  }
}

template <bool transposed>
inline void load_matrices(std::uint32_t (&to)[4], const BFloat16* row) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0 || !device_on_cpu::is_shared(row, 16)) {
    device_on_cpu::fault(cudaErrorMisalignedAddress,
                         "ldmatrix: no row of 16 bytes of shared memory");
  }
  const device_on_cpu::Exchange all(0xffffffffu, &row, sizeof row, device_on_cpu::Place::current());
  const int g = device_on_cpu::lane() / 4;
  const int t = device_on_cpu::lane() % 4;
  for (int matrix = 0; matrix < 4; ++matrix) {
    const auto at = [&](int r, int c) {
      return std::uint32_t{all.of<const BFloat16*>(8 * matrix + r)[c].bits};
    };
    to[matrix] =
        transposed ? at(2 * t, g) | at(2 * t + 1, g) << 16 : at(g, 2 * t) | at(g, 2 * t + 1) << 16;
  }
}

struct CopyUnderWay {
  void* to;
  const void* from;  // null: zeros
  int bytes;
};

/// Of each thread of the block.
inline std::vector<CopyUnderWay> copies_under_way[device_on_cpu::kThreadsMax];

/// The latest time is played: until the thread waits there are NaNs.
template <int bytes>
inline void copy_async(void* to, const void* from, bool valid) {
  if (reinterpret_cast<std::uintptr_t>(to) % bytes != 0 ||
      reinterpret_cast<std::uintptr_t>(from) % bytes != 0 || !device_on_cpu::is_shared(to, bytes)) {
    device_on_cpu::fault(cudaErrorMisalignedAddress,
                         "cp.async: not from a multiple of the size to one in shared memory");
  }
  std::memset(to, 0xff, bytes);
  copies_under_way[threadIdx.x].push_back({to, valid ? from : nullptr, bytes});
}

inline void wait_for_copies() {
  for (const CopyUnderWay& each : copies_under_way[threadIdx.x]) {
    if (each.from) {
      std::memcpy(each.to, each.from, static_cast<std::size_t>(each.bytes));
    } else {
      std::memset(each.to, 0, static_cast<std::size_t>(each.bytes));
    }
  }
  copies_under_way[threadIdx.x].clear();
}

inline float exp2_quickly(float x) {
  return std::exp2(x);
}

inline std::uint32_t pack(float low, float high) {
  return std::uint32_t{to_bfloat16(low).bits} | std::uint32_t{to_bfloat16(high).bits} << 16;
}

}  // namespace troupe::cuda
