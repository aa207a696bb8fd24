// Arithmetic of whole tensors, element by element.
#pragma once

#include "kernels/activation.hpp"
#include "kernels/stream.hpp"

#include <cstdint>

namespace troupe {

/// `width` columns of each row: y[:, y_first + i] = x[:, x_first + i] for i < width. x (rows, ...) and y (rows, ...)
/// float32, both of two dimensions. Throws ContractError where they have not so many.
struct ColumnsCopy {
  Tensor x;
  std::int64_t x_first = 0;
  Tensor y;
  std::int64_t y_first = 0;
  std::int64_t width = 0;
};

void copy_columns(Stream& stream, const ColumnsCopy& copy);

/// y = act(a + b). Shapes: any, as many elements; y may be a or b. Activation: none or relu. Each
/// float32 or of the stream's operand_type().
void add(
    Stream& stream, const Tensor& a, const Tensor& b, ActivationKind activation, const Tensor& y);

// The backends: same signatures, arguments already checked.
namespace cpu {
decltype(troupe::add) add;
decltype(troupe::copy_columns) copy_columns;
}  // namespace cpu

namespace cuda {
decltype(troupe::add) add;
decltype(troupe::copy_columns) copy_columns;
}  // namespace cuda

}  // namespace troupe
