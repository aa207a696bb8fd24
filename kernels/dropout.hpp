// Dropout whose mask is a function of a random stream and the element's index: the same on every
// backend, and made again for the backward instead of being kept.
#pragma once

#include "kernels/random.hpp"
#include "kernels/stream.hpp"

namespace troupe {

/// y[i] = x[i] / (1 - rate) where element i is kept, else 0. It is kept where the upper 32 bits of
/// random.bits(first + i) are at least rate 2^32; x[i] is multiplied by 1 / (1 - rate) rounded to
/// float, so that backends agree in every bit. Its own backward with the same random, first and
/// rate. Shapes: x, y any, as many elements; y may be x. rate in [0, 1). Both float32 or of
/// the stream's operand_type(). Srivastava et al. 2014, in the inverted form.
void dropout(Stream& stream,
             const RandomStream& random,
             std::uint64_t first,
             float rate,
             const Tensor& x,
             const Tensor& y);

// The backends: same signatures, arguments already checked.
TROUPE_BACKENDS(dropout);

}  // namespace troupe
