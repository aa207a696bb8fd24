#include "kernels/dropout.hpp"

#include "kernels/dispatch.hpp"

namespace troupe {

void dropout(Stream& stream,
             const RandomStream& random,
             std::uint64_t first,
             float rate,
             const Tensor& x,
             const Tensor& y) {
  check_operand("dropout", "x", x, stream);
  check_tensor("dropout", "y", y, stream, x.type());
  TROUPE_CHECK(x.elements() == y.elements(), "[dropout] x is ", x.shape(), ", y ", y.shape());
  TROUPE_CHECK(rate >= 0 && rate < 1, "[dropout] rate ", rate, " is not in [0, 1)");
  begin(stream, {&x, &y});
  TROUPE_DISPATCH(dropout, stream, random, first, rate, x, y);
}

}  // namespace troupe
