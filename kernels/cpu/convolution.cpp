#include "kernels/convolution.hpp"

#include "kernels/cpu/backend.hpp"
#include "kernels/cpu/packed_convolution.hpp"
#include "kernels/cpu/small_convolution.hpp"

namespace troupe::cpu {

namespace {

ConvolutionPlan plan_of(const ConvolutionGeometry& g, const Shape& x, const Shape& y) {
  return {.batch = x[0],
          .height = x[1],
          .width = x[2],
          .channels_in = x[3],
          .channels_out = y[3],
          .height_out = y[1],
          .width_out = y[2],
          .kernel = g.kernel,
          .stride = g.stride,
          .padding = g.padding};
}

}  // namespace

void convolution_forward(Stream& stream,
                         const ConvolutionGeometry& geometry,
                         const Tensor& x,
                         const Tensor& w,
                         const Tensor& bias,
                         ActivationKind activation,
                         const Tensor& y) {
  const ConvolutionPlan plan = plan_of(geometry, x.shape(), y.shape());
  ActivationKind left_to_do = activation;
  if (small_forward(plan)) {
    const bool relu = activation == ActivationKind::relu;
    small_convolution_forward(stream.cpu(),
                              plan,
                              x.data<float>(),
                              w.data<float>(),
                              bias ? bias.data<float>() : nullptr,
                              relu,
                              y.data<float>());
    left_to_do = relu ? ActivationKind::none : activation;
  } else if (packed_convolution_wins(plan)) {
    packed_convolution_forward(stream.cpu(),
                               plan,
                               x.data<float>(),
                               w.data<float>(),
                               bias ? bias.data<float>() : nullptr,
                               y.data<float>());
  } else {
    stream.cpu().onednn().convolution_forward(plan,
                                              x.data<float>(),
                                              w.data<float>(),
                                              bias ? bias.data<float>() : nullptr,
                                              y.data<float>());
  }
  if (left_to_do != ActivationKind::none) {
    cpu::activation_forward(stream, left_to_do, y, y);
  }
}

void convolution_input_gradient(Stream& stream,
                                const ConvolutionGeometry& geometry,
                                const Tensor& dy,
                                const Tensor& w,
                                const Tensor& dx) {
  const ConvolutionPlan plan = plan_of(geometry, dx.shape(), dy.shape());
  if (small_input_gradient(plan)) {
    small_convolution_input_gradient(
        stream.cpu(), plan, dy.data<float>(), w.data<float>(), dx.data<float>());
  } else if (packed_convolution_wins(plan)) {
    packed_convolution_input_gradient(
        stream.cpu(), plan, dy.data<float>(), w.data<float>(), dx.data<float>());
  } else {
    stream.cpu().onednn().convolution_input_gradient(
        plan, dy.data<float>(), w.data<float>(), dx.data<float>());
  }
}

void convolution_weight_gradient(Stream& stream,
                                 const ConvolutionGeometry& geometry,
                                 const Tensor& x,
                                 const Tensor& dy,
                                 const Tensor& dw,
                                 bool accumulate) {
  const ConvolutionPlan plan = plan_of(geometry, x.shape(), dy.shape());
  if (small_weight_gradient(plan)) {
    small_convolution_weight_gradient(
        stream.cpu(), plan, x.data<float>(), dy.data<float>(), dw.data<float>(), accumulate);
  } else if (packed_convolution_wins(plan)) {
    packed_convolution_weight_gradient(
        stream.cpu(), plan, x.data<float>(), dy.data<float>(), dw.data<float>(), accumulate);
  } else {
    stream.cpu().onednn().convolution_weight_gradient(
        plan, x.data<float>(), dy.data<float>(), dw.data<float>(), accumulate);
  }
}

}  // namespace troupe::cpu
