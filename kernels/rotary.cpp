#include "kernels/rotary.hpp"

#include "kernels/dispatch.hpp"
#include "kernels/wording.hpp"

namespace troupe {

void rotary(Stream& stream, const Rotary& o, const Tensor& x, const Tensor& y) {
  check_operand("rotary", "x", x, stream);
  TROUPE_CHECK(o.heads >= 1 && o.head_size >= 2 && o.head_size % 2 == 0 && o.theta > 0 &&
                   x.shape().dimensions() == 3 && x.shape()[2] >= o.heads * o.head_size,
               fill_in("[rotary] x is {}, which has not {} heads of {} columns, an even number",
                       x.shape(),
                       o.heads,
                       o.head_size));
  check_tensor("rotary", "y", y, stream, x.shape(), x.type());
  if (x.elements() == 0) {
    return;
  }
  begin(stream, {&x, &y});
  TROUPE_DISPATCH(rotary, stream, o, x, y);
}

}  // namespace troupe
