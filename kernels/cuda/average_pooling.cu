// Average pooling. Forward and backward are the same work: an output pixel is the sum over a
// rectangle of input pixels, divided by the window's size. Neighbouring threads take neighbouring
// channels.
#include "kernels/convolution.hpp"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/functors/pooling.hpp"

namespace troupe::cuda {

namespace {

struct Extent {
  std::int64_t height;
  std::int64_t width;
};

struct WindowsOfPixels {
  __device__ PixelRange operator()(const ConvolutionGeometry& g,
                                   std::int64_t index,
                                   std::int64_t extent) const {
    return pixels_of_window(g, index, extent);
  }
};

struct PixelsOfWindows {
  __device__ PixelRange operator()(const ConvolutionGeometry& g,
                                   std::int64_t index,
                                   std::int64_t extent) const {
    return windows_of_pixel(g, index, extent);
  }
};

/// Element i of y (B, H', W', C) = the average over the pixels of x (B, H, W, C) that Range says
/// along each side, added up row by row as on the CPU.
template <class Range, class T>
struct Average {
  ConvolutionGeometry geometry;
  Extent in;
  Extent out;
  std::int64_t C;
  float factor;
  const T* x;
  T* y;

  /// A pack is of one pixel's channels.
  template <int width>
  __device__ void at(std::int64_t i) const {
    const Place in_pixel(i, C);
    const Place in_row(in_pixel.row, out.width);
    const Place in_image(in_row.row, out.height);
    const PixelRange down = Range{}(geometry, in_image.column, in.height);
    const PixelRange across = Range{}(geometry, in_row.column, in.width);
    const T* from = x + in_image.row * in.height * in.width * C + in_pixel.column;
    Pack<float, width> sum{};
    for (std::int64_t h = down.first; h < down.last; ++h) {
#pragma unroll 4
      for (std::int64_t w = across.first; w < across.last; ++w) {
        const Pack<T, width> values = load<width>(from, (h * in.width + w) * C);
#pragma unroll
        for (int k = 0; k < width; ++k) {
          sum.lane[k] += to_float(values.lane[k]);
        }
      }
    }
    Pack<T, width> average;
#pragma unroll
    for (int k = 0; k < width; ++k) {
      average.lane[k] = from_float<T>(sum.lane[k] * factor);
    }
    store<width>(y, i, average);
  }
};

template <class Range>
void average_all(Stream& stream, const ConvolutionGeometry& g, const Tensor& x, const Tensor& y) {
  const auto extent = [](const Tensor& images) {
    return Extent{images.shape()[1], images.shape()[2]};
  };
  const Backend::State& state = activate(stream);
  with_type_of(x, [&]<class T>() {
    const Average<Range, T> average{.geometry = g,
                                    .in = extent(x),
                                    .out = extent(y),
                                    .C = x.shape()[3],
                                    .factor = 1.0f / static_cast<float>(g.kernel * g.kernel),
                                    .x = x.data<T>(),
                                    .y = y.data<T>()};
    const auto width = pack_width(average.x, average.y).dividing(average.C);
    for_each_index(state, y.elements(), width, average);
  });
}

}  // namespace

void average_pool_forward(Stream& stream,
                          const ConvolutionGeometry& geometry,
                          const Tensor& x,
                          const Tensor& y) {
  average_all<WindowsOfPixels>(stream, geometry, x, y);
}

void average_pool_backward(Stream& stream,
                           const ConvolutionGeometry& geometry,
                           const Tensor& dy,
                           const Tensor& dx) {
  average_all<PixelsOfWindows>(stream, geometry, dy, dx);
}

}  // namespace troupe::cuda
