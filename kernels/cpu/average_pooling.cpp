// Average pooling. Forward and backward are the same work: an output pixel is the sum over a
// rectangle of input pixels, divided by the window's size.
#include "kernels/convolution.hpp"
#include "kernels/cpu/vector.hpp"
#include "kernels/functors/pooling.hpp"

namespace troupe::cpu::TROUPE_ISA {

namespace {

/// y = the sum over the rectangle times `factor`, added up row by row.
void average(const float* image,
             std::int64_t width,
             std::int64_t channels,
             const PixelRange& down,
             const PixelRange& across,
             float factor,
             float* y) {
  std::int64_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) {
    Floats sum{};
    for (std::int64_t h = down.first; h < down.last; ++h) {
      for (std::int64_t w = across.first; w < across.last; ++w) {
        sum += load(image + (h * width + w) * channels + c);
      }
    }
    store(y + c, sum * broadcast(factor));
  }
  for (; c < channels; ++c) {
    float sum = 0.0f;
    for (std::int64_t h = down.first; h < down.last; ++h) {
      for (std::int64_t w = across.first; w < across.last; ++w) {
        sum += image[(h * width + w) * channels + c];
      }
    }
    y[c] = sum * factor;
  }
}

/// Every pixel of y (B, H', W', C) = the average over the pixels of x (B, H, W, C) that range(index,
/// extent of x) says along each side.
template <class Range>
void average_all(const ConvolutionGeometry& g, const Tensor& x, const Tensor& y, Range range) {
  const std::int64_t height = x.shape()[1];
  const std::int64_t width = x.shape()[2];
  const std::int64_t channels = x.shape()[3];
  const float factor = 1.0f / static_cast<float>(g.kernel * g.kernel);
  const float* image = x.data<float>();
  float* to = y.data<float>();
  for (std::int64_t b = 0; b < y.shape()[0]; ++b, image += height * width * channels) {
    for (std::int64_t h = 0; h < y.shape()[1]; ++h) {
      const PixelRange down = range(h, height);
      for (std::int64_t w = 0; w < y.shape()[2]; ++w, to += channels) {
        average(image, width, channels, down, range(w, width), factor, to);
      }
    }
  }
}

}  // namespace

void average_pool_forward(Stream& /*stream*/,
                          const ConvolutionGeometry& geometry,
                          const Tensor& x,
                          const Tensor& y) {
  average_all(geometry, x, y, [&](std::int64_t output, std::int64_t inputs) {
    return pixels_of_window(geometry, output, inputs);
  });
}

void average_pool_backward(Stream& /*stream*/,
                           const ConvolutionGeometry& geometry,
                           const Tensor& dy,
                           const Tensor& dx) {
  average_all(geometry, dy, dx, [&](std::int64_t input, std::int64_t outputs) {
    return windows_of_pixel(geometry, input, outputs);
  });
}

}  // namespace troupe::cpu::TROUPE_ISA
