// Arithmetic of whole tensors, element by element.
#pragma once

#include "kernels/activation.hpp"
#include "kernels/stream.hpp"

#include <cstdint>

namespace troupe {

/// y = act(a + b). Shapes: any, as many elements; y may be a or b. Activation: none or relu. Each
/// float32 or of the stream's operand_type().
void add(
    Stream& stream, const Tensor& a, const Tensor& b, ActivationKind activation, const Tensor& y);

/// y[r, to + c] = x[r, from + c] for each row and c < columns; the rest of y stays. Shapes: x (R, A), y (R, B) in all
/// dimensions but the last, from + columns <= A, to + columns <= B; each float32 or of the stream's operand_type().
void copy_columns(Stream& stream,
                  const Tensor& x,
                  std::int64_t from,
                  const Tensor& y,
                  std::int64_t to,
                  std::int64_t columns);

// The backends: same signatures, arguments already checked.
TROUPE_BACKENDS(add);
TROUPE_BACKENDS(copy_columns);

}  // namespace troupe
