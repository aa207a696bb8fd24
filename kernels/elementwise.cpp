#include "kernels/elementwise.hpp"

#include "kernels/dispatch.hpp"

namespace troupe {

void add(
    Stream& stream, const Tensor& a, const Tensor& b, ActivationKind activation, const Tensor& y) {
  check_operand("add", "a", a, stream);
  check_operand("add", "b", b, stream);
  check_operand("add", "y", y, stream);
  TROUPE_CHECK(a.elements() == b.elements() && a.elements() == y.elements(),
               "[add] a is ",
               a.shape(),
               ", b ",
               b.shape(),
               ", y ",
               y.shape());
  TROUPE_CHECK(activation == ActivationKind::none || activation == ActivationKind::relu,
               "[add] activation ",
               to_string(activation),
               "; right is none or relu");
  begin(stream, {&a, &b, &y});
  TROUPE_DISPATCH(add, stream, a, b, activation, y);
}

}  // namespace troupe
