#include "kernels/convert.hpp"

#include "kernels/dispatch.hpp"

namespace troupe {

void convert(Stream& stream, const Tensor& x, const Tensor& y) {
  const bool narrows = x && x.type() == DType::float32;
  check_tensor("convert", "x", x, stream, narrows ? DType::float32 : DType::bfloat16);
  check_tensor("convert", "y", y, stream, narrows ? DType::bfloat16 : DType::float32);
  TROUPE_CHECK(x.elements() == y.elements(), "[convert] x is ", x.shape(), ", y is ", y.shape());
  begin(stream, {&x, &y});
  TROUPE_DISPATCH(convert, stream, x, y);
}

Tensor operand(Stream& stream, const Tensor& x) {
  if (x.type() == stream.operand_type()) {
    return x;
  }
  Tensor y = stream.allocate(x.shape(), stream.operand_type());
  convert(stream, x, y);
  return y;
}

Tensor in_float32(Stream& stream, const Tensor& x) {
  if (!x || x.type() != DType::bfloat16) {
    return x;
  }
  Tensor y = stream.allocate(x.shape());
  convert(stream, x, y);
  return y;
}

}  // namespace troupe
