// Between float32 and the bfloat16 that products read.
#pragma once

#include "kernels/stream.hpp"

#include <cstdint>

namespace troupe {

/// y = x, rounded to the nearest (functors/bfloat16.hpp) or exact. As many elements; one is float32 and the other
/// bfloat16. Throws ContractError on sizes, types or devices that disagree.
void convert(Stream& stream, const Tensor& x, const Tensor& y);

/// x (float32 or bfloat16) as the stream's products want it: x itself where it is of the stream's operand_type(), else
/// a converted tensor. What two products read (an activation its forward and its weight gradient, an error both
/// gradients) is converted once, by whoever calls both.
Tensor operand(Stream& stream, const Tensor& x);

/// x itself where it is no bfloat16, else float32.
Tensor in_float32(Stream& stream, const Tensor& x);

// The backends: same signatures, arguments already checked.
TROUPE_BACKENDS(convert);

/// to[i] = from[i], rounded, for i < n: what a product does with its operands.
TROUPE_ON_CPU(void round_to_bfloat16(const float* from, std::int64_t n, BFloat16* to));

}  // namespace troupe
