// Max pooling, one thread some neighbouring channels of a pixel of what is written. cuDNN's does not say which element won.
#include "kernels/convolution.hpp"
#include "kernels/cuda/elementwise.cuh"

namespace troupe::cuda {

namespace {

/// x (B, H, W, C), pooled (B, H', W', C). I: an integer that counts the elements of both, for each element has its place
/// divided several times, and divisions of 64 bits are slow.
template <class I>
struct Pooling {
  I height;
  I width;
  I channels;
  I height_out;
  I width_out;
  I kernel;
  I stride;
  I padding;
};

/// The places [first, last) of a window along one axis that are inside the image, and where the
/// window begins. Never empty: the padding is smaller than the window.
template <class I>
struct Reach {
  I begin;  // negative where it begins in the padding
  I first;
  I last;

  __device__ Reach(const Pooling<I>& p, I index, I extent)
      : begin(index * p.stride - p.padding),
        first(begin < 0 ? -begin : 0),
        last(p.kernel < extent - begin ? p.kernel : extent - begin) {}
};

template <class T, class I>
struct MaxForward {
  Pooling<I> p;
  const T* x;
  T* y;
  std::int32_t* winner;

  /// As on the CPU: the first of equals wins, and a NaN wins over everything before it. A pack is of one pixel's channels.
  template <int width>
  __device__ void at(std::int64_t element) const {
    const I i = static_cast<I>(element);
    const I pixel = i / p.channels;
    const I c = i - pixel * p.channels;
    const I row = pixel / p.width_out;
    const I image_index = row / p.height_out;
    const Reach<I> across(p, pixel - row * p.width_out, p.width);
    const Reach<I> down(p, row - image_index * p.height_out, p.height);
    const T* image = x + image_index * p.height * p.width * p.channels + c;
    const auto at = [&](I ky, I kx) {
      return load<width>(image, ((down.begin + ky) * p.width + across.begin + kx) * p.channels);
    };
    const Pack<T, width> first = at(down.first, across.first);
    Pack<float, width> best;
    Pack<std::int32_t, width> place;
#pragma unroll
    for (int k = 0; k < width; ++k) {
      best.lane[k] = to_float(first.lane[k]);
      place.lane[k] = static_cast<std::int32_t>(down.first * p.kernel + across.first);
    }
    for (I ky = down.first; ky < down.last; ++ky) {
      for (I kx = across.first; kx < across.last; ++kx) {
        const Pack<T, width> values = at(ky, kx);
#pragma unroll
        for (int k = 0; k < width; ++k) {
          const float value = to_float(values.lane[k]);
          const bool wins = value > best.lane[k] || value != value;
          best.lane[k] = wins ? value : best.lane[k];
          place.lane[k] = wins ? static_cast<std::int32_t>(ky * p.kernel + kx) : place.lane[k];
        }
      }
    }
    Pack<T, width> largest;
#pragma unroll
    for (int k = 0; k < width; ++k) {
      largest.lane[k] = from_float<T>(best.lane[k]);
    }
    store<width>(y, element, largest);
    store<width>(winner, element, place);
  }
};

/// The windows [first, last) along one axis that a pixel lies in; empty in a gap between windows.
template <class I>
struct Windows {
  I first;
  I last;

  __device__ Windows(const Pooling<I>& p, I index, I count) {
    const I padded = index + p.padding;
    first = padded < p.kernel ? 0 : (padded - p.kernel) / p.stride + 1;
    last = padded / p.stride + 1;
    last = last < count ? last : count;
  }
};

template <class T, class I>
struct MaxBackward {
  Pooling<I> p;
  const T* dy;
  const std::int32_t* winner;
  T* dx;

  /// Each pixel collects, in the order of the windows: no atomic addition, the same bits as the
  /// CPU's. A pack is of one pixel's channels.
  template <int width>
  __device__ void at(std::int64_t element) const {
    const I i = static_cast<I>(element);
    const I pixel = i / p.channels;
    const I c = i - pixel * p.channels;
    const I row = pixel / p.width;
    const I ix = pixel - row * p.width;
    const I image_index = row / p.height;
    const I iy = row - image_index * p.height;
    const I image = image_index * p.height_out;
    const Windows<I> down(p, iy, p.height_out);
    const Windows<I> across(p, ix, p.width_out);
    Pack<float, width> sum{};
    for (I oy = down.first; oy < down.last; ++oy) {
      const I ky = iy + p.padding - oy * p.stride;
      for (I ox = across.first; ox < across.last; ++ox) {
        const I kx = ix + p.padding - ox * p.stride;
        const std::int64_t from = ((image + oy) * p.width_out + ox) * p.channels + c;
        const Pack<std::int32_t, width> winners = load<width>(winner, from);
        const Pack<T, width> gradients = load<width>(dy, from);
#pragma unroll
        for (int k = 0; k < width; ++k) {
          if (winners.lane[k] == ky * p.kernel + kx) {
            sum.lane[k] += to_float(gradients.lane[k]);
          }
        }
      }
    }
    Pack<T, width> result;
#pragma unroll
    for (int k = 0; k < width; ++k) {
      result.lane[k] = from_float<T>(sum.lane[k]);
    }
    store<width>(dx, element, result);
  }
};

template <class I>
Pooling<I> pooling_of(const ConvolutionGeometry& g, const Shape& x, const Shape& y) {
  const auto in = [](std::int64_t extent) {
    return static_cast<I>(extent);
  };
  return {.height = in(x[1]),
          .width = in(x[2]),
          .channels = in(x[3]),
          .height_out = in(y[1]),
          .width_out = in(y[2]),
          .kernel = in(g.kernel),
          .stride = in(g.stride),
          .padding = in(g.padding)};
}

/// Packs of a pixel's channels.
template <class T, class I>
auto packs_of_pixels(const T* a, const T* b, const std::int32_t* winner, const Pooling<I>& p) {
  const auto width = pack_width(a, b).dividing(p.channels);
  return packable<decltype(width)::kWidest>(winner) ? width : decltype(width){1};
}

/// f.operator()<T, I>(): the type of the images, and what counts their elements.
template <class F>
void with_types(const ConvolutionGeometry& g, const Tensor& x, const Tensor& y, F f) {
  with_type_of(x, [&]<class T>() {
    // Windows reach beyond the image, and places are counted there, too.
    if (std::max({x.elements(), y.elements(), g.stride, g.kernel}) < (std::int64_t{1} << 30)) {
      f.template operator()<T, std::int32_t>();
    } else {
      f.template operator()<T, std::int64_t>();
    }
  });
}

}  // namespace

void max_pool_forward(Stream& stream,
                      const ConvolutionGeometry& geometry,
                      const Tensor& x,
                      const Tensor& y,
                      const Tensor& winner) {
  const Backend::State& state = activate(stream);
  with_types(geometry, x, y, [&]<class T, class I>() {
    const MaxForward<T, I> pass{.p = pooling_of<I>(geometry, x.shape(), y.shape()),
                                .x = x.data<T>(),
                                .y = y.data<T>(),
                                .winner = winner.data<std::int32_t>()};
    for_each_index(state, y.elements(), packs_of_pixels(pass.x, pass.y, pass.winner, pass.p), pass);
  });
}

void max_pool_backward(Stream& stream,
                       const ConvolutionGeometry& geometry,
                       const Tensor& dy,
                       const Tensor& winner,
                       const Tensor& dx) {
  const Backend::State& state = activate(stream);
  with_types(geometry, dx, dy, [&]<class T, class I>() {
    const MaxBackward<T, I> pass{.p = pooling_of<I>(geometry, dx.shape(), dy.shape()),
                                 .dy = dy.data<T>(),
                                 .winner = winner.data<std::int32_t>(),
                                 .dx = dx.data<T>()};
    for_each_index(
        state, dx.elements(), packs_of_pixels(pass.dx, pass.dy, pass.winner, pass.p), pass);
  });
}

}  // namespace troupe::cuda
