// Tensor Cores, a warp at a time (PTX ISA, "mma.m16n8k16" and "ldmatrix"): products of bfloat16 added up in float32.
// What a lane holds, with g = lane / 4 and t = lane % 4:
//
//   a (16, 16)   four pairs: row g or g + 8 (second and fourth), columns 2t, 2t + 1, plus 8 (third and fourth)
//   b (16, 8)    two pairs: column g, rows 2t, 2t + 1, plus 8 (second)
//   d (16, 8)    row g: columns 2t, 2t + 1; row g + 8: the same
//
// So two neighbouring d of one product are, rounded, an a of the next.
//
// And what feeds them: copies into shared memory that run beside the products ("cp.async").
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

/// Copies 4 or 16 bytes from global to shared memory, both at a multiple of as many, or zeros where not `valid`: `from` is
/// not read then. The thread goes on; it finds them behind wait_for_copies(), other threads behind a barrier after that.
template <int bytes>
__device__ inline void copy_async(void* to, const void* from, bool valid) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  const int size = valid ? bytes : 0;
  if constexpr (bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(address), "l"(from), "r"(size)
                 : "memory");
  } else {
    static_assert(bytes == 4);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :
                 : "r"(address), "l"(from), "r"(size)
                 : "memory");
  }
}

/// Until all copies that this thread has begun are done.
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_all;" : : : "memory");
}

/// 2^x within 2 units in the last place; 0 where it is subnormal.
__device__ inline float exp2_quickly(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Both rounded to the nearest, `low` in the lower half.
__device__ inline std::uint32_t pack(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

}  // namespace troupe::cuda
