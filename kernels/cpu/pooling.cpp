// Max pooling. Lanes are channels: with fewer channels than lanes, a pixel's lanes run on into the
// next pixels, and what is stored there is overwritten when their turn comes.
#include "kernels/convolution.hpp"
#include "kernels/cpu/vector.hpp"

#include <algorithm>

namespace troupe::cpu::TROUPE_ISA {

namespace {

Ints places(std::int64_t place) {
  return static_cast<std::int32_t>(place) - Ints{};
}

/// The running maximum of some channels, and where in the window it was met.
struct Best {
  Floats value;
  Ints place;

  [[gnu::always_inline]] void offer(Floats x, std::int64_t at) {
    // Greater, so that the first of equals stays; or a NaN, which nothing replaces later.
    const Ints takes = (x > value) | (x != x);
    value = takes ? x : value;
    place = takes ? places(at) : place;
  }
};

/// The places [first, last) of a window along one axis that are inside the image, and where the
/// window begins.
struct Reach {
  std::int64_t begin;  // negative where it begins in the padding
  std::int64_t first;
  std::int64_t last;

  Reach(const ConvolutionGeometry& g, std::int64_t index, std::int64_t extent)
      : begin(index * g.stride - g.padding),
        first(std::max<std::int64_t>(0, -begin)),
        last(std::min(g.kernel, extent - begin)) {}
};

/// f.operator()<kernel, vectors>(): the usual cases as constants, so that their loops unroll; 0
/// stands for the others.
template <class F>
void with_fixed(std::int64_t kernel, std::int64_t channels, F f) {
  if (kernel == 2 && channels <= kLanes) {
    f.template operator()<2, 1>();
  } else if (kernel == 2 && channels <= 2 * kLanes) {
    f.template operator()<2, 2>();
  } else if (kernel == 2) {
    f.template operator()<2, 0>();
  } else {
    f.template operator()<0, 0>();
  }
}

/// Any geometry, one channel at a time.
void pool_pixel(const float* image,
                std::int64_t width,
                std::int64_t channels,
                std::int64_t kernel,
                const Reach& down,
                const Reach& across,
                float* y,
                std::int32_t* winner) {
  for (std::int64_t c = 0; c < channels; ++c) {
    const auto at = [&](std::int64_t ky, std::int64_t kx) {
      return image[((down.begin + ky) * width + across.begin + kx) * channels + c];
    };
    float best = at(down.first, across.first);
    std::int64_t place = down.first * kernel + across.first;
    for (std::int64_t ky = down.first; ky < down.last; ++ky) {
      for (std::int64_t kx = across.first; kx < across.last; ++kx) {
        const float x = at(ky, kx);
        if (x > best || x != x) {
          best = x;
          place = ky * kernel + kx;
        }
      }
    }
    y[c] = best;
    winner[c] = static_cast<std::int32_t>(place);
  }
}

/// `count` pixels of a row whose windows lie wholly inside the image. What is read and written runs
/// up to a vector beyond the last channel.
template <std::int64_t fixed_kernel, std::int64_t fixed_vectors>
void pool_row(const float* window,
              std::int64_t count,
              const ConvolutionGeometry& g,
              std::int64_t width,
              std::int64_t channels,
              float* y,
              std::int32_t* winner) {
  const std::int64_t kernel = fixed_kernel > 0 ? fixed_kernel : g.kernel;
  const std::int64_t lanes = fixed_vectors > 0 ? fixed_vectors * kLanes : channels;
  const std::int64_t window_step = g.stride * channels;
  const std::int64_t row_step = width * channels;
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t c = 0; c < lanes; c += kLanes) {
      Best best{load(window + c), Ints{}};
      for (std::int64_t ky = 0; ky < kernel; ++ky) {
        for (std::int64_t kx = ky == 0 ? 1 : 0; kx < kernel; ++kx) {
          best.offer(load(window + ky * row_step + kx * channels + c), ky * kernel + kx);
        }
      }
      store(y + c, best.value);
      store(winner + c, best.place);
    }
    window += window_step;
    y += channels;
    winner += channels;
  }
}

/// One row of dx under `count` windows that do not overlap: each window's part of the row is dy
/// where the winner is in this row and column, else zero. What is read and written runs up to a
/// vector beyond the last channel.
template <std::int64_t fixed_kernel, std::int64_t fixed_vectors>
void unpool_row(const float* dy,
                const std::int32_t* winner,
                std::int64_t count,
                const ConvolutionGeometry& g,
                std::int64_t ky,
                std::int64_t channels,
                float* dx) {
  const std::int64_t kernel = fixed_kernel > 0 ? fixed_kernel : g.kernel;
  const std::int64_t lanes = fixed_vectors > 0 ? fixed_vectors * kLanes : channels;
  const std::int64_t gap =
      (g.stride - kernel) * channels;  // between windows, where the stride is larger
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t kx = 0; kx < kernel; ++kx) {
      const Ints place = places(ky * kernel + kx);
      for (std::int64_t c = 0; c < lanes; c += kLanes) {
        store(dx + c, load<Ints>(winner + c) == place ? load(dy + c) : Floats{});
      }
      dx += channels;
    }
    for (std::int64_t end = gap; end > 0; --end) {
      *dx++ = 0.0f;
    }
    dy += channels;
    winner += channels;
  }
}

/// Windows that do not overlap: an input pixel belongs to one at most, and dx is written once, in
/// order.
void unpool_disjoint(const ConvolutionGeometry& g,
                     const Tensor& dy,
                     const Tensor& winner,
                     const Tensor& dx) {
  const std::int64_t height = dx.shape()[1];
  const std::int64_t width = dx.shape()[2];
  const std::int64_t channels = dx.shape()[3];
  const std::int64_t pooled_height = dy.shape()[1];
  const std::int64_t pooled_width = dy.shape()[2];
  const std::int64_t row_elements = width * channels;
  const std::int64_t pooled_row_elements = pooled_width * channels;
  const std::int64_t spill = (channels + kLanes - 1) / kLanes * kLanes - channels;
  for (std::int64_t row = 0; row < dx.shape()[0] * height; ++row) {
    const std::int64_t oy = row % height / g.stride;
    const std::int64_t ky = row % height % g.stride;
    float* to = dx.data<float>() + row * row_elements;
    float* const row_end = to + row_elements;
    if (oy < pooled_height && ky < g.kernel) {
      const std::int64_t pooled = (row / height * pooled_height + oy) * pooled_row_elements;
      const float* gradient = dy.data<float>() + pooled;
      const std::int32_t* place = winner.data<std::int32_t>() + pooled;
      // So that what runs on stays within the row, its last windows go one channel at a time.
      const std::int64_t rest =
          std::max((spill + channels - 1) / channels, std::int64_t{g.stride > g.kernel});
      const std::int64_t count = std::max<std::int64_t>(0, pooled_width - rest);
      with_fixed(g.kernel, channels, [&]<std::int64_t kernel, std::int64_t vectors>() {
        unpool_row<kernel, vectors>(gradient, place, count, g, ky, channels, to);
      });
      to += count * g.stride * channels;
      for (std::int64_t i = count * channels; i < pooled_row_elements; i += channels) {
        for (std::int64_t kx = 0; kx < g.kernel; ++kx) {
          for (std::int64_t c = 0; c < channels; ++c) {
            *to++ = place[i + c] == ky * g.kernel + kx ? gradient[i + c] : 0.0f;
          }
        }
        to = std::fill_n(to, std::min((g.stride - g.kernel) * channels, row_end - to), 0.0f);
      }
    }
    std::fill(to, row_end, 0.0f);
  }
}

void unpool_overlapping(const ConvolutionGeometry& g,
                        const Tensor& dy,
                        const Tensor& winner,
                        const Tensor& dx) {
  const std::int64_t height = dx.shape()[1];
  const std::int64_t width = dx.shape()[2];
  const std::int64_t channels = dx.shape()[3];
  const float* from = dy.data<float>();
  const std::int32_t* place = winner.data<std::int32_t>();
  std::fill_n(dx.data<float>(), dx.elements(), 0.0f);
  for (std::int64_t b = 0; b < dy.shape()[0]; ++b) {
    float* image = dx.data<float>() + b * height * width * channels;
    for (std::int64_t oy = 0; oy < dy.shape()[1]; ++oy) {
      for (std::int64_t ox = 0; ox < dy.shape()[2]; ++ox) {
        for (std::int64_t c = 0; c < channels; ++c) {
          const std::int64_t iy = oy * g.stride - g.padding + *place / g.kernel;
          const std::int64_t ix = ox * g.stride - g.padding + *place % g.kernel;
          image[(iy * width + ix) * channels + c] += *from++;
          ++place;
        }
      }
    }
  }
}

}  // namespace

void max_pool_forward(Stream& /*stream*/,
                      const ConvolutionGeometry& geometry,
                      const Tensor& x,
                      const Tensor& y,
                      const Tensor& winner) {
  const ConvolutionGeometry& g = geometry;
  const std::int64_t height = x.shape()[1];
  const std::int64_t width = x.shape()[2];
  const std::int64_t channels = x.shape()[3];
  const std::int64_t pooled_width = y.shape()[2];
  const std::int64_t spill = (channels + kLanes - 1) / kLanes * kLanes - channels;
  const std::int64_t image_elements = height * width * channels;
  // Windows [inside, inside_end) of a row touch no padding.
  const std::int64_t inside = std::min((g.padding + g.stride - 1) / g.stride, pooled_width);
  const std::int64_t inside_end =
      std::max(inside, std::min(pooled_width, (width + g.padding - g.kernel) / g.stride + 1));
  std::int64_t done = 0;  // elements of y
  for (std::int64_t b = 0; b < x.shape()[0]; ++b) {
    const float* image = x.data<float>() + b * image_elements;
    for (std::int64_t oy = 0; oy < y.shape()[1]; ++oy) {
      const Reach down(g, oy, height);
      const auto one_by_one = [&](std::int64_t from, std::int64_t to) {
        for (std::int64_t ox = from; ox < to; ++ox, done += channels) {
          pool_pixel(image,
                     width,
                     channels,
                     g.kernel,
                     down,
                     Reach(g, ox, width),
                     y.data<float>() + done,
                     winner.data<std::int32_t>() + done);
        }
      };
      // The very end of the tensors has no room for lanes that run on.
      std::int64_t fast_end = down.first == 0 && down.last == g.kernel ? inside_end : inside;
      const auto runs_over = [&](std::int64_t ox) {
        const std::int64_t last =
            ((down.begin + g.kernel - 1) * width + ox * g.stride - g.padding + g.kernel) * channels;
        return b * image_elements + last + spill > x.elements() ||
               done + (ox + 1) * channels + spill > y.elements();
      };
      while (fast_end > inside && runs_over(fast_end - 1)) {
        --fast_end;
      }
      one_by_one(0, inside);
      const float* window = image + (down.begin * width + inside * g.stride - g.padding) * channels;
      const std::int64_t count = fast_end - inside;
      with_fixed(g.kernel, channels, [&]<std::int64_t kernel, std::int64_t vectors>() {
        pool_row<kernel, vectors>(window,
                                  count,
                                  g,
                                  width,
                                  channels,
                                  y.data<float>() + done,
                                  winner.data<std::int32_t>() + done);
      });
      done += count * channels;
      one_by_one(fast_end, pooled_width);
    }
  }
}

void max_pool_backward(Stream& /*stream*/,
                       const ConvolutionGeometry& geometry,
                       const Tensor& dy,
                       const Tensor& winner,
                       const Tensor& dx) {
  if (geometry.stride >= geometry.kernel && geometry.padding == 0) {
    unpool_disjoint(geometry, dy, winner, dx);
  } else {
    unpool_overlapping(geometry, dy, winner, dx);
  }
}

}  // namespace troupe::cpu::TROUPE_ISA
