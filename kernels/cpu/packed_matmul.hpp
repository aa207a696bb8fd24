// A matrix product of our own, for what oneDNN is bad at on machines without AVX-512: its AVX2
// kernels read the factors where they lie, and a row length of 512 or 1024 floats puts a whole
// column of one into the same few cache sets (40 instead of 84 GFLOP/s measured for the right
// factor, 34 instead of 75 for a transposed left one). This one copies both factors into tiles
// first.
#pragma once

#include "kernels/cpu/backend.hpp"

namespace troupe::cpu::TROUPE_ISA {

/// Whether packed_matmul is faster than oneDNN's for the shape, on this machine.
bool packed_matmul_wins(const MatmulPlan& plan);

/// Arguments as OneDnn::matmul's; b must not be transposed.
void packed_matmul(Backend& backend,
                   const MatmulPlan& plan,
                   const float* a,
                   const float* b,
                   const float* bias,
                   float* c);

}  // namespace troupe::cpu::TROUPE_ISA
