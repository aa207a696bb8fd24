#include "kernels/elementwise.hpp"

#include "kernels/dispatch.hpp"
#include "kernels/wording.hpp"

namespace troupe {

void add(
    Stream& stream, const Tensor& a, const Tensor& b, ActivationKind activation, const Tensor& y) {
  check_operand("add", "a", a, stream);
  check_operand("add", "b", b, stream);
  check_operand("add", "y", y, stream);
  TROUPE_CHECK(a.elements() == b.elements() && a.elements() == y.elements(),
               fill_in("[add] a is {}, b {}, y {}", a.shape(), b.shape(), y.shape()));
  TROUPE_CHECK(activation == ActivationKind::none || activation == ActivationKind::relu,
               fill_in("[add] activation {}; expected none or relu", to_string(activation)));
  begin(stream, {&a, &b, &y});
  TROUPE_DISPATCH(add, stream, a, b, activation, y);
}

void copy_columns(Stream& stream,
                  const Tensor& x,
                  std::int64_t from,
                  const Tensor& y,
                  std::int64_t to,
                  std::int64_t columns) {
  check_operand("copy_columns", "x", x, stream);
  check_operand("copy_columns", "y", y, stream);
  const std::int64_t a = x.shape().back();
  const std::int64_t b = y.shape().back();
  TROUPE_CHECK(
      from >= 0 && to >= 0 && columns >= 0 && from + columns <= a && to + columns <= b &&
          x.elements() * b == y.elements() * a,
      fill_in("[copy_columns] {} columns from {} of x, which is {}, to {} of y, which is {}",
              columns,
              from,
              x.shape(),
              to,
              y.shape()));
  begin(stream, {&x, &y});
  TROUPE_DISPATCH(copy_columns, stream, x, from, y, to, columns);
}

}  // namespace troupe
