// Arithmetic of whole tensors, element by element.
#pragma once

#include "kernels/activation.hpp"
#include "kernels/stream.hpp"

namespace troupe {

/// y = act(a + b). Shapes: any, as many elements; y may be a or b. Activation: none or relu. Each
/// float32 or of the stream's operand_type().
void add(
    Stream& stream, const Tensor& a, const Tensor& b, ActivationKind activation, const Tensor& y);

// The backends: same signatures, arguments already checked.
namespace cpu {
decltype(troupe::add) add;
}  // namespace cpu

namespace cuda {
decltype(troupe::add) add;
}  // namespace cuda

}  // namespace troupe
