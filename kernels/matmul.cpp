#include "kernels/matmul.hpp"

#include "kernels/convert.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/wording.hpp"

namespace troupe {

void matmul(Stream& stream,
            const Tensor& a,
            const Tensor& b,
            const Tensor& c,
            const MatmulOptions& options) {
  check_operand("matmul", "a", a, stream);
  check_operand("matmul", "b", b, stream);
  check_operand("matmul", "c", c, stream);
  TROUPE_CHECK(
      a.shape().dimensions() == 2 && b.shape().dimensions() == 2 && c.shape().dimensions() == 2,
      fill_in("[matmul] not all are matrices: a is {}, b is {}, c is {}",
              a.shape(),
              b.shape(),
              c.shape()));
  const std::int64_t rows = a.shape()[options.transpose_a ? 1 : 0];        // M
  const std::int64_t inner = a.shape()[options.transpose_a ? 0 : 1];       // K
  const std::int64_t inner_of_b = b.shape()[options.transpose_b ? 1 : 0];  // K
  const std::int64_t columns = b.shape()[options.transpose_b ? 0 : 1];     // N
  const auto stored = [](const Tensor& x, bool transposed) {
    return concat(x.shape(), transposed ? " transposed" : "");
  };
  TROUPE_CHECK(inner == inner_of_b,
               fill_in("[matmul] inner dimensions differ: a is {}, b is {}",
                       stored(a, options.transpose_a),
                       stored(b, options.transpose_b)));
  TROUPE_CHECK(c.shape() == (Shape{rows, columns}),
               fill_in("[matmul] c is {}, not {}: a is {}, b is {}",
                       c.shape(),
                       Shape{rows, columns},
                       stored(a, options.transpose_a),
                       stored(b, options.transpose_b)));
  TROUPE_CHECK(rows > 0 && inner > 0 && columns > 0,
               fill_in("[matmul] an extent is zero: a is {}, b is {}", a.shape(), b.shape()));
  const auto is_c = [&](const Tensor& x) {
    return x.type() == c.type() &&
           (c.type() == DType::float32 ? x.data<float>() == c.data<float>()
                                       : x.data<BFloat16>() == c.data<BFloat16>());
  };
  TROUPE_CHECK(!is_c(a) && !is_c(b), "[matmul] c is one of its operands");
  if (options.bias) {
    check_tensor("matmul", "bias", options.bias, stream, Shape{columns});
  }
  TROUPE_CHECK(derivative_from_output(options.activation),
               "[matmul] ",
               to_string(options.activation),
               "'s derivative needs what comes before it: call activation_forward");
  TROUPE_CHECK(!options.accumulate || (!options.bias && options.activation == ActivationKind::none),
               "[matmul] accumulate goes with neither bias nor activation");
  begin(stream, {&a, &b, &c, &options.bias});
  TROUPE_DISPATCH(matmul, stream, a, b, c, options);
}

RepeatedFactor::RepeatedFactor(Stream& stream, const Tensor& b, bool transpose)
    : b_(operand(stream, b)), transpose_(transpose) {
  TROUPE_CHECK(
      b.shape().dimensions() == 2, "[RepeatedFactor] the factor is no matrix: ", b.shape());
  if (stream.device().kind != DeviceKind::cpu || stream.precision() == Precision::bf16) {
    return;
  }
  const std::int64_t floats =
      TROUPE_CPU(panel_floats)(b.shape()[transpose ? 1 : 0], b.shape()[transpose ? 0 : 1]);
  if (floats > 0) {
    panels_ = stream.allocate({floats});
    begin(stream, {&b_, &panels_});
    TROUPE_CPU(pack_panels)(stream, b_, transpose_, panels_);
  }
}

void RepeatedFactor::multiply(Stream& stream,
                              const Tensor& a,
                              const Tensor& c,
                              bool accumulate) const {
  if (!panels_) {
    matmul(stream, a, b_, c, {.transpose_b = transpose_, .accumulate = accumulate});
    return;
  }
  check_tensor("matmul", "a", a, stream);
  TROUPE_CHECK(a.shape().dimensions() == 2 && a.elements() > 0, "[matmul] a is ", a.shape());
  check_tensor("matmul", "a", a, stream, Shape{a.shape()[0], b_.shape()[transpose_ ? 1 : 0]});
  check_tensor("matmul", "c", c, stream, Shape{a.shape()[0], b_.shape()[transpose_ ? 0 : 1]});
  TROUPE_CHECK(a.data<float>() != c.data<float>(), "[matmul] c is one of its operands");
  begin(stream, {&a, &panels_, &c});
  TROUPE_CPU(multiply_by_panels)(stream, a, panels_, c, accumulate);
}

void column_sum(Stream& stream, const Tensor& x, const Tensor& out, bool accumulate) {
  check_operand("column_sum", "x", x, stream);
  TROUPE_CHECK(x.shape().dimensions() == 2, "[column_sum] x is no matrix: ", x.shape());
  check_tensor("column_sum", "out", out, stream, Shape{x.shape()[1]});
  begin(stream, {&x, &out});
  TROUPE_DISPATCH(column_sum, stream, x, out, accumulate);
}

}  // namespace troupe
