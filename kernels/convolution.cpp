#include "kernels/convolution.hpp"

#include "kernels/dispatch.hpp"
#include "kernels/wording.hpp"

namespace troupe {

namespace {

void check_geometry(std::string_view op, const ConvolutionGeometry& g, const Shape& x) {
  TROUPE_CHECK(g.kernel >= 1 && g.stride >= 1 && g.padding >= 0 && g.padding < g.kernel,
               fill_in("[{}] kernel {}, stride {}, padding {}; expected kernel >= 1, stride >= 1, "
                       "0 <= padding < kernel",
                       op,
                       g.kernel,
                       g.stride,
                       g.padding));
  TROUPE_CHECK(x.dimensions() == 4, "[", op, "] the image side is ", x, ", not (B, H, W, C)");
  TROUPE_CHECK(
      x.elements() > 0 && x[1] + 2 * g.padding >= g.kernel && x[2] + 2 * g.padding >= g.kernel,
      fill_in("[{}] an image side of {} has no window of {} with padding {}",
              op,
              x,
              g.kernel,
              g.padding));
}

/// x (B, H, W, C), w (O, kernel, kernel, C), y (B, H', W', O): whichever of them is the output, whose type is still to be
/// checked.
void check_convolution(std::string_view op,
                       const Stream& stream,
                       const ConvolutionGeometry& g,
                       const Tensor& x,
                       const Tensor& w,
                       const Tensor& y) {
  check_operand(op, "x", x, stream);
  check_geometry(op, g, x.shape());
  const Shape& image = x.shape();
  check_tensor(op, "w", w, stream);
  TROUPE_CHECK(w.shape().dimensions() == 4 && w.shape()[0] > 0,
               fill_in("[{}] w is {}, not (O, kernel, kernel, C)", op, w.shape()));
  const std::int64_t channels_out = w.shape()[0];
  check_tensor(op, "w", w, stream, Shape{channels_out, g.kernel, g.kernel, image[3]});
  check_operand(op, "y", y, stream);
  const Shape windows{image[0], g.output(image[1]), g.output(image[2]), channels_out};
  TROUPE_CHECK(y.shape() == windows, "[", op, "] y is ", y.shape(), ", not ", windows);
}

/// x (B, H, W, C), y (B, H', W', C): whichever of them is the output.
void check_pooling(std::string_view op,
                   const Stream& stream,
                   const ConvolutionGeometry& g,
                   const Tensor& x,
                   const Tensor& y) {
  check_operand(op, "x", x, stream);
  check_geometry(op, g, x.shape());
  const Shape& image = x.shape();
  const Shape windows{image[0], g.output(image[1]), g.output(image[2]), image[3]};
  check_tensor(op, "y", y, stream, windows, x.type());
}

}  // namespace

void convolution_forward(Stream& stream, const ConvolutionArguments& a) {
  check_convolution("convolution_forward", stream, a.geometry, a.x, a.w, a.y);
  if (a.bias) {
    check_tensor("convolution_forward", "bias", a.bias, stream, Shape{a.w.shape()[0]});
  }
  TROUPE_CHECK(derivative_from_output(a.activation),
               "[convolution_forward] ",
               to_string(a.activation),
               "'s derivative needs what comes before it: call activation_forward");
  begin(stream, {&a.x, &a.w, &a.bias, &a.y});
  TROUPE_DISPATCH_WITH(kCudnn, convolution_forward, stream, a);
}

void convolution_input_gradient(Stream& stream,
                                const ConvolutionGeometry& geometry,
                                const Tensor& dy,
                                const Tensor& w,
                                const Tensor& dx) {
  check_convolution("convolution_input_gradient", stream, geometry, dx, w, dy);
  begin(stream, {&dy, &w, &dx});
  TROUPE_DISPATCH_WITH(kCudnn, convolution_input_gradient, stream, geometry, dy, w, dx);
}

void convolution_weight_gradient(Stream& stream,
                                 const ConvolutionGeometry& geometry,
                                 const Tensor& x,
                                 const Tensor& dy,
                                 const Tensor& dw,
                                 bool accumulate) {
  check_convolution("convolution_weight_gradient", stream, geometry, x, dw, dy);
  begin(stream, {&x, &dy, &dw});
  TROUPE_DISPATCH_WITH(
      kCudnn, convolution_weight_gradient, stream, geometry, x, dy, dw, accumulate);
}

void max_pool_forward(Stream& stream,
                      const ConvolutionGeometry& geometry,
                      const Tensor& x,
                      const Tensor& y,
                      const Tensor& winner) {
  check_pooling("max_pool_forward", stream, geometry, x, y);
  check_tensor("max_pool_forward", "winner", winner, stream, y.shape(), DType::int32);
  begin(stream, {&x, &y, &winner});
  TROUPE_DISPATCH(max_pool_forward, stream, geometry, x, y, winner);
}

void max_pool_backward(Stream& stream,
                       const ConvolutionGeometry& geometry,
                       const Tensor& dy,
                       const Tensor& winner,
                       const Tensor& dx) {
  check_pooling("max_pool_backward", stream, geometry, dx, dy);
  check_tensor("max_pool_backward", "winner", winner, stream, dy.shape(), DType::int32);
  begin(stream, {&dy, &winner, &dx});
  TROUPE_DISPATCH(max_pool_backward, stream, geometry, dy, winner, dx);
}

void average_pool_forward(Stream& stream,
                          const ConvolutionGeometry& geometry,
                          const Tensor& x,
                          const Tensor& y) {
  check_pooling("average_pool_forward", stream, geometry, x, y);
  begin(stream, {&x, &y});
  TROUPE_DISPATCH(average_pool_forward, stream, geometry, x, y);
}

void average_pool_backward(Stream& stream,
                           const ConvolutionGeometry& geometry,
                           const Tensor& dy,
                           const Tensor& dx) {
  check_pooling("average_pool_backward", stream, geometry, dx, dy);
  begin(stream, {&dy, &dx});
  TROUPE_DISPATCH(average_pool_backward, stream, geometry, dy, dx);
}

}  // namespace troupe
