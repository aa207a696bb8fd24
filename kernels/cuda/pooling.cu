// Max pooling, one thread an element of the output. cuDNN's does not say which element won.
#include "kernels/convolution.hpp"
#include "kernels/cuda/elementwise.cuh"

namespace troupe::cuda {

namespace {

/// x (B, H, W, C), pooled (B, H', W', C).
struct Pooling {
  std::int64_t height;
  std::int64_t width;
  std::int64_t channels;
  std::int64_t height_out;
  std::int64_t width_out;
  std::int64_t kernel;
  std::int64_t stride;
  std::int64_t padding;
};

/// The places [first, last) of a window along one axis that are inside the image, and where the
/// window begins. Never empty: the padding is smaller than the window.
struct Reach {
  std::int64_t begin;  // negative where it begins in the padding
  std::int64_t first;
  std::int64_t last;

  __device__ Reach(const Pooling& p, std::int64_t index, std::int64_t extent)
      : begin(index * p.stride - p.padding),
        first(begin < 0 ? -begin : 0),
        last(p.kernel < extent - begin ? p.kernel : extent - begin) {}
};

struct MaxForward {
  Pooling p;
  const float* x;
  float* y;
  std::int32_t* winner;

  /// As on the CPU: the first of equals wins, and a NaN wins over everything before it.
  __device__ void pool(std::int64_t i) const {
    const std::int64_t c = i % p.channels;
    const std::int64_t pixel = i / p.channels;
    const std::int64_t row = pixel / p.width_out;
    const Reach across(p, pixel % p.width_out, p.width);
    const Reach down(p, row % p.height_out, p.height);
    const float* image = x + row / p.height_out * p.height * p.width * p.channels + c;
    const auto at = [&](std::int64_t ky, std::int64_t kx) {
      return image[((down.begin + ky) * p.width + across.begin + kx) * p.channels];
    };
    float best = at(down.first, across.first);
    std::int64_t place = down.first * p.kernel + across.first;
    for (std::int64_t ky = down.first; ky < down.last; ++ky) {
      for (std::int64_t kx = across.first; kx < across.last; ++kx) {
        const float value = at(ky, kx);
        if (value > best || value != value) {
          best = value;
          place = ky * p.kernel + kx;
        }
      }
    }
    y[i] = best;
    winner[i] = static_cast<std::int32_t>(place);
  }

  template <int width>
  __device__ void at(std::int64_t i) const {
    for (int k = 0; k < width; ++k) {
      pool(i + k);
    }
  }
};

/// The windows [first, last) along one axis that a pixel lies in; empty in a gap between windows.
struct Windows {
  std::int64_t first;
  std::int64_t last;

  __device__ Windows(const Pooling& p, std::int64_t index, std::int64_t count) {
    const std::int64_t padded = index + p.padding;
    first = padded < p.kernel ? 0 : (padded - p.kernel) / p.stride + 1;
    last = padded / p.stride + 1;
    last = last < count ? last : count;
  }
};

struct MaxBackward {
  Pooling p;
  const float* dy;
  const std::int32_t* winner;
  float* dx;

  /// Each pixel collects, in the order of the windows: no atomic addition, the same bits as the
  /// CPU's.
  __device__ void collect(std::int64_t i) const {
    const std::int64_t c = i % p.channels;
    const std::int64_t pixel = i / p.channels;
    const std::int64_t ix = pixel % p.width;
    const std::int64_t row = pixel / p.width;
    const std::int64_t iy = row % p.height;
    const std::int64_t image = row / p.height * p.height_out;
    const Windows down(p, iy, p.height_out);
    const Windows across(p, ix, p.width_out);
    float sum = 0.0f;
    for (std::int64_t oy = down.first; oy < down.last; ++oy) {
      const std::int64_t ky = iy + p.padding - oy * p.stride;
      for (std::int64_t ox = across.first; ox < across.last; ++ox) {
        const std::int64_t kx = ix + p.padding - ox * p.stride;
        const std::int64_t from = ((image + oy) * p.width_out + ox) * p.channels + c;
        if (winner[from] == ky * p.kernel + kx) {
          sum += dy[from];
        }
      }
    }
    dx[i] = sum;
  }

  template <int width>
  __device__ void at(std::int64_t i) const {
    for (int k = 0; k < width; ++k) {
      collect(i + k);
    }
  }
};

Pooling pooling_of(const ConvolutionGeometry& g, const Shape& x, const Shape& y) {
  return {.height = x[1],
          .width = x[2],
          .channels = x[3],
          .height_out = y[1],
          .width_out = y[2],
          .kernel = g.kernel,
          .stride = g.stride,
          .padding = g.padding};
}

}  // namespace

void max_pool_forward(Stream& stream,
                      const ConvolutionGeometry& geometry,
                      const Tensor& x,
                      const Tensor& y,
                      const Tensor& winner) {
  const MaxForward pass{.p = pooling_of(geometry, x.shape(), y.shape()),
                        .x = x.data<float>(),
                        .y = y.data<float>(),
                        .winner = winner.data<std::int32_t>()};
  for_each_index(activate(stream), y.elements(), false, pass);
}

void max_pool_backward(Stream& stream,
                       const ConvolutionGeometry& geometry,
                       const Tensor& dy,
                       const Tensor& winner,
                       const Tensor& dx) {
  const MaxBackward pass{.p = pooling_of(geometry, dx.shape(), dy.shape()),
                         .dy = dy.data<float>(),
                         .winner = winner.data<std::int32_t>(),
                         .dx = dx.data<float>()};
  for_each_index(activate(stream), dx.elements(), false, pass);
}

}  // namespace troupe::cuda
