// Average pooling. Forward and backward are the same work: an output pixel is the sum over a
// rectangle of input pixels, divided by the window's size.
#include "kernels/convolution.hpp"
#include "kernels/cpu/vector.hpp"
#include "kernels/functors/pooling.hpp"

#include <vector>

namespace troupe::cpu::TROUPE_ISA {

namespace {

struct Rectangle {
  const float* image;
  std::int64_t width;
  std::int64_t channels;
  PixelRange down;
  PixelRange across;
};

/// y = the sums over the rectangle of some channels times `factor`, added up row by row. Several vectors of them: their
/// additions do not wait for each other.
template <int vectors>
[[gnu::always_inline]] inline void average(const Rectangle& of,
                                           std::int64_t first_channel,
                                           float factor,
                                           float* y) {
  Floats sums[vectors] = {};
  for (std::int64_t h = of.down.first; h < of.down.last; ++h) {
    const float* x = of.image + (h * of.width + of.across.first) * of.channels + first_channel;
    for (std::int64_t w = of.across.first; w < of.across.last; ++w, x += of.channels) {
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) {
        sums[v] += load(x + v * kLanes);
      }
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < vectors; ++v) {
    store(y + first_channel + v * kLanes, sums[v] * broadcast(factor));
  }
}

/// The same of one channel.
float average(const Rectangle& of, std::int64_t channel, float factor) {
  float sum = 0.0f;
  for (std::int64_t h = of.down.first; h < of.down.last; ++h) {
    for (std::int64_t w = of.across.first; w < of.across.last; ++w) {
      sum += of.image[(h * of.width + w) * of.channels + channel];
    }
  }
  return sum * factor;
}

/// Every pixel of y (B, H', W', C) = the average over the pixels of x (B, H, W, C) that range(index,
/// extent of x) says along each side.
template <class Range>
void average_all(const ConvolutionGeometry& g, const Tensor& x, const Tensor& y, Range range) {
  constexpr int kAbreast = 8;
  const std::int64_t height = x.shape()[1];
  const std::int64_t channels = x.shape()[3];
  const std::int64_t whole = channels / kLanes;
  const float factor = 1.0f / static_cast<float>(g.kernel * g.kernel);
  Rectangle of{
      .image = x.data<float>(), .width = x.shape()[2], .channels = channels, .down{}, .across{}};
  std::vector<PixelRange> across;
  for (std::int64_t w = 0; w < y.shape()[2]; ++w) {
    across.push_back(range(w, of.width));
  }
  float* to = y.data<float>();
  // A whole vector may be read and written in place of the last channels where it ends within the image, or y: what is
  // wrong in it belongs to pixels that are not read, or are written later.
  const std::int64_t rest = whole * kLanes;
  const std::int64_t image = height * of.width * channels;
  const float* const end = y.data<float>() + y.shape().elements();
  for (std::int64_t b = 0; b < y.shape()[0]; ++b, of.image += image) {
    for (std::int64_t h = 0; h < y.shape()[1]; ++h) {
      of.down = range(h, height);
      const auto each_pixel = [&](auto make) {
        float* pixel = to;
        for (const PixelRange& columns : across) {
          of.across = columns;
          make(pixel);
          pixel += channels;
        }
      };
      if (rest < channels) {
        each_pixel([&](float* pixel) {
          const std::int64_t last = (of.down.last - 1) * of.width + of.across.last - 1;
          if (last * channels + rest + kLanes <= image && end - pixel >= rest + kLanes) {
            return average<1>(of, rest, factor, pixel);
          }
          for (std::int64_t c = rest; c < channels; ++c) {
            pixel[c] = average(of, c, factor);
          }
        });
      }
      for_each_piece<kAbreast>(whole, [&](std::int64_t first, auto vectors) {
        each_pixel([&](float* pixel) { average<vectors>(of, first * kLanes, factor, pixel); });
      });
      to += y.shape()[2] * channels;
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
