#include "kernels/convolution.hpp"

#include "kernels/cpu/backend.hpp"
#include "kernels/cpu/packed_convolution.hpp"
#include "kernels/cpu/small_convolution.hpp"

namespace troupe::cpu::TROUPE_ISA {

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

void convolution_forward(Stream& stream, const ConvolutionArguments& a) {
  const ConvolutionPlan plan = plan_of(a.geometry, a.x.shape(), a.y.shape());
  ActivationKind left_to_do = a.activation;
  if (small_forward(plan)) {
    const bool relu = a.activation == ActivationKind::relu;
    small_convolution_forward(stream.cpu(),
                              plan,
                              a.x.data<float>(),
                              a.w.data<float>(),
                              a.bias ? a.bias.data<float>() : nullptr,
                              relu,
                              a.y.data<float>());
    left_to_do = relu ? ActivationKind::none : a.activation;
  } else if (packed_convolution_wins(plan)) {
    packed_convolution_forward(stream.cpu(),
                               plan,
                               a.x.data<float>(),
                               a.w.data<float>(),
                               a.bias ? a.bias.data<float>() : nullptr,
                               a.y.data<float>());
  } else {
    stream.cpu().onednn().convolution_forward(plan,
                                              a.x.data<float>(),
                                              a.w.data<float>(),
                                              a.bias ? a.bias.data<float>() : nullptr,
                                              a.y.data<float>());
  }
  if (left_to_do != ActivationKind::none) {
    TROUPE_ISA::activation_forward(stream, left_to_do, a.y, a.y);
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

}  // namespace troupe::cpu::TROUPE_ISA
