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

void copy_columns(Stream& stream, const ColumnsCopy& copy) {
  check_tensor("copy_columns", "x", copy.x, stream);
  check_tensor("copy_columns", "y", copy.y, stream);
  const Shape& from = copy.x.shape();
  const Shape& to = copy.y.shape();
  TROUPE_CHECK(from.dimensions() == 2 && to.dimensions() == 2 && from[0] == to[0] &&
                   copy.x_first >= 0 && copy.y_first >= 0 && copy.width >= 0 &&
                   copy.x_first + copy.width <= from[1] && copy.y_first + copy.width <= to[1],
               "[copy_columns] ",
               copy.width,
               " columns from ",
               copy.x_first,
               " of ",
               from,
               " to ",
               copy.y_first,
               " of ",
               to);
  begin(stream, {&copy.x, &copy.y});
  TROUPE_DISPATCH(copy_columns, stream, copy);
}

}  // namespace troupe
