#include "kernels/convolution.hpp"

#include "kernels/cpu/backend.hpp"
#include "kernels/cpu/packed_convolution.hpp"
#include "kernels/cpu/small_convolution.hpp"

#include <algorithm>
#include <cstdint>

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

enum class Pass { forward, input_gradient, weight_gradient };

/// The share of all pairs of a filter's tap and a place of the filter whose tap lies beside the image: packed
/// convolutions leave these out, oneDNN multiplies their zeros.
double share_beside_image(const ConvolutionPlan& p) {
  const auto inside = [&](std::int64_t extent, std::int64_t places) {
    std::int64_t taps = 0;
    for (std::int64_t at = 0; at < places; ++at) {
      const std::int64_t first = at * p.stride - p.padding;
      const std::int64_t end = std::min(extent, first + p.kernel);
      taps += std::max<std::int64_t>(0, end - std::max<std::int64_t>(0, first));
    }
    return static_cast<double>(taps) / static_cast<double>(places * p.kernel);
  };
  return 1.0 - inside(p.height, p.height_out) * inside(p.width, p.width_out);
}

/// Without AVX-512 packed convolutions are faster for all that they take. With it they are so where there are many
/// channels, but for forward passes of large images with very many (BENCHMARKS.md).
bool packed_convolution_wins(const ConvolutionPlan& p, Pass pass) {
  constexpr std::int64_t kManyChannels = 64;
  constexpr std::int64_t kVeryMany = 128;
  constexpr double kMuch = 0.15;
  return packed_convolution_takes(p) &&
         (!onednn_has_avx512() ||
          (std::min(p.channels_in, p.channels_out) >= kManyChannels &&
           (pass != Pass::forward || p.channels_in < kVeryMany || share_beside_image(p) > kMuch)));
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
  } else if (packed_convolution_wins(plan, Pass::forward)) {
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
  } else if (packed_convolution_wins(plan, Pass::input_gradient)) {
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
  } else if (packed_convolution_wins(plan, Pass::weight_gradient)) {
    packed_convolution_weight_gradient(
        stream.cpu(), plan, x.data<float>(), dy.data<float>(), dw.data<float>(), accumulate);
  } else {
    stream.cpu().onednn().convolution_weight_gradient(
        plan, x.data<float>(), dy.data<float>(), dw.data<float>(), accumulate);
  }
}

}  // namespace troupe::cpu::TROUPE_ISA
