// Tensor Cores, a warp at a time (PTX ISA, "mma.m16n8k16" and "ldmatrix"): products of bfloat16 added up in float32.
// What a lane holds, with g = lane / 4 and t = lane % 4:
//
//   a (16, 16)   four pairs: row g or g + 8 (second and fourth), columns 2t, 2t + 1, plus 8 (third and fourth)
//   b (16, 8)    two pairs: column g, rows 2t, 2t + 1, plus 8 (second)
//   d (16, 8)    row g: columns 2t, 2t + 1; row g + 8: the same
//
// So two neighbouring d of one product are, rounded, an a of the next.
#pragma once

#include "kernels/functors/bfloat16.hpp"

#include <cstdint>

namespace troupe::cuda {

/// d += a b.
__device__ inline void multiply_add(float (&d)[4],
                                    const std::uint32_t (&a)[4],
                                    std::uint32_t b0,
                                    std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Four (8, 8) matrices from shared memory: lane i gives the beginning of row i % 8 of matrix i / 8, at a multiple of
/// 16 bytes, and gets of each matrix a pair: row g, columns 2t, 2t + 1; transposed: rows 2t, 2t + 1 of column g.
template <bool transposed>
__device__ inline void load_matrices(std::uint32_t (&to)[4], const BFloat16* row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  }
}

/// Both rounded to the nearest, `low` in the lower half.
__device__ inline std::uint32_t pack(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

}  // namespace troupe::cuda
