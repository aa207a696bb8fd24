// What every public op does before its backend runs. Private to kernels/*.cpp.
#pragma once

#include "kernels/check.hpp"
#include "kernels/stream.hpp"

#include <initializer_list>
#include <string_view>

namespace troupe {

/// Orders `stream` behind what the tensors wait for, and lets their buffers remember the stream.
/// Empty ones are skipped.
void begin(Stream& stream, std::initializer_list<const Tensor*> tensors);

/// Throws ContractError unless `x` holds something, of `type`, on the stream's device.
void check_tensor(std::string_view op,
                  std::string_view name,
                  const Tensor& x,
                  const Stream& stream,
                  DType type = DType::float32);

/// The same, and the shape is `shape`.
void check_tensor(std::string_view op,
                  std::string_view name,
                  const Tensor& x,
                  const Stream& stream,
                  const Shape& shape,
                  DType type = DType::float32);

/// The same for what a product reads: float32 or the stream's operand_type().
void check_operand(std::string_view op,
                   std::string_view name,
                   const Tensor& x,
                   const Stream& stream);

/// cpu::op(stream, ...) or cuda::op(stream, ...).
#define TROUPE_DISPATCH(op, stream, ...)               \
  ((stream).device().kind == ::troupe::DeviceKind::cpu \
       ? ::troupe::cpu::op((stream), __VA_ARGS__)      \
       : ::troupe::cuda::op((stream), __VA_ARGS__))

}  // namespace troupe
