// Rows that begin at multiples of 16 bytes. Tensor Core kernels read in words of 16 bytes; a matrix
// whose rows have another length is left to those that read element by element.
#pragma once

#include "kernels/cuda/state.hpp"

namespace troupe::cuda {

/// y[r, c] = x[r, c], and 0 beyond x's rows and columns; what y has no room for is left out. Shapes: any, both float32 or both
/// bfloat16, y's rows in [1, 2^31).
void pad_rows(const Backend::State& state, const Tensor& x, const Tensor& y);

}  // namespace troupe::cuda
