#include "kernels/cpu/packed_convolution.hpp"
#include "kernels/cpu/vector.hpp"

#include <algorithm>
#include <cstring>

namespace troupe::cpu::TROUPE_ISA {

namespace {

// dw (O, tap, C) = sum over pixels of dy (pixels, O) x (pixels shifted by the tap, C). Some images
// at a time, place by place, both are copied into tiles, in which the pixels that a tap reads stand
// side by side: x's columns are sorted by their rest to the stride.

// Pixels that are added up before their sum is added to dw: no matter of caches, as another number would change bits.
constexpr std::int64_t kBlockPixels = 1024;

struct GradientBlock {
  const ConvolutionPlan& p;
  std::int64_t first;  // image
  std::int64_t count;  // images

  std::int64_t columns_each() const { return (p.width + p.stride - 1) / p.stride; }

  std::int64_t pixels_in() const { return p.height * columns_each() * p.stride * count; }

  std::int64_t pixels_out() const { return p.height_out * p.width_out * count; }

  /// Place of x's pixel (iy, ix) of the block's first image.
  std::int64_t place(std::int64_t iy, std::int64_t ix) const {
    const std::int64_t column = ix % p.stride * columns_each() + ix / p.stride;
    return (iy * columns_each() * p.stride + column) * count;
  }

  /// x (images, H, W, C) as (C / kTileWidth, places, kTileWidth).
  void pack_x(const float* x, float* packed) const {
    const std::int64_t panel = pixels_in() * kTileWidth;
    const float* from = x + first * p.height * p.width * p.channels_in;
    for (std::int64_t b = 0; b < count; ++b) {
      for (std::int64_t iy = 0; iy < p.height; ++iy) {
        for (std::int64_t ix = 0; ix < p.width; ++ix) {
          float* to = packed + (place(iy, ix) + b) * kTileWidth;
          for (std::int64_t c = 0; c < p.channels_in;
               c += kTileWidth, from += kTileWidth, to += panel) {
            copy_width(from, to);
          }
        }
      }
    }
  }

  /// dy (images, pixels, O) as tiles of O, each (places, rows): some places at a time for all tiles, so that their lines
  /// are still in the cache for the next tile.
  void pack_dy(const float* dy, float* packed) const {
    constexpr std::int64_t kEach = 8;
    const std::int64_t pixels = p.height_out * p.width_out;
    for (std::int64_t begin = 0; begin < pixels_out(); begin += kEach) {
      const std::int64_t each = std::min(kEach, pixels_out() - begin);
      const float* from[kEach];
      for (std::int64_t i = 0; i < each; ++i) {
        const std::int64_t image = first + (begin + i) % count;
        from[i] = dy + (image * pixels + (begin + i) / count) * p.channels_out;
      }
      for_each_piece<kTileRows>(p.channels_out, [&](std::int64_t o, auto rows) {
        float* to = packed + o * pixels_out() + begin * rows;
        // A vector at once, whose end the next place overwrites, but where it would reach beyond the channels, or beyond the
        // last place of these into a tile that is whole.
        const bool vector = rows <= kLanes && kLanes <= 2 * rows && o + kLanes <= p.channels_out;
        const std::int64_t vectors = vector ? each - 1 : 0;
        for (std::int64_t i = 0; i < vectors; ++i) {
          store(to + i * rows, load(from[i] + o));
        }
        for (std::int64_t i = vectors; i < each; ++i) {  // copy_n would call a function
          std::memcpy(to + i * rows, from[i] + o, int{rows} * sizeof(float));
        }
      });
    }
  }
};

/// One tap of a tile of dw: `left` and `right` are the tiles of dy and x.
template <int rows>
void sum_pixels(const GradientBlock& block,
                std::int64_t ky,
                std::int64_t kx,
                const float* left,
                const float* right,
                bool add,
                float* dw,
                std::int64_t dw_row) {
  const ConvolutionPlan& p = block.p;
  // The windows whose tap lies inside: 0 <= i stride - padding + tap < extent.
  const auto begin = [&](std::int64_t tap) {
    return std::max<std::int64_t>(0, (p.padding - tap + p.stride - 1) / p.stride);
  };
  const auto end = [&](std::int64_t tap, std::int64_t extent, std::int64_t windows) {
    const std::int64_t last = extent - 1 + p.padding - tap;
    return last < 0 ? 0 : std::min(windows, last / p.stride + 1);
  };
  Tile<Floats, rows, kTileVectors> tile;
  tile.clear();
  const std::int64_t x_begin = begin(kx);
  const std::int64_t run = (end(kx, p.width, p.width_out) - x_begin) * block.count;
  for (std::int64_t oy = begin(ky); run > 0 && oy < end(ky, p.height, p.height_out); ++oy) {
    const std::int64_t iy = oy * p.stride - p.padding + ky;
    const std::int64_t ix = x_begin * p.stride - p.padding + kx;
    tile.add_product(run,
                     left + (oy * p.width_out + x_begin) * block.count * rows,
                     RowsSideBySide{},
                     rows,
                     right + block.place(iy, ix) * kTileWidth,
                     kTileWidth);
  }
  tile.for_each([&](const Floats& sum, int r, int v) {
    float* to = dw + r * dw_row + v * kLanes;
    store(to, add ? load(to) + sum : sum);
  });
}

}  // namespace

void packed_convolution_weight_gradient(Backend& backend,
                                        const ConvolutionPlan& plan,
                                        const float* x,
                                        const float* dy,
                                        float* dw,
                                        bool accumulate) {
  const ConvolutionPlan p = plan;
  const std::int64_t taps = p.kernel * p.kernel;
  const std::int64_t images =
      std::clamp<std::int64_t>(kBlockPixels / (p.height_out * p.width_out), 1, p.batch);
  const GradientBlock largest{p, 0, images};
  float* right =
      backend.scratch(largest.pixels_in() * p.channels_in + largest.pixels_out() * p.channels_out);
  float* left = right + largest.pixels_in() * p.channels_in;
  for (std::int64_t b = 0; b < p.batch; b += images) {
    const GradientBlock block{p, b, std::min(images, p.batch - b)};
    block.pack_x(x, right);
    block.pack_dy(dy, left);
    for (std::int64_t c = 0; c < p.channels_in; c += kTileWidth) {
      for_each_piece<kTileRows>(p.channels_out, [&](std::int64_t o, auto rows) {
        for (std::int64_t tap = 0; tap < taps; ++tap) {
          sum_pixels<rows>(block,
                           tap / p.kernel,
                           tap % p.kernel,
                           left + o * block.pixels_out(),
                           right + c * block.pixels_in(),
                           accumulate || b > 0,
                           dw + (o * taps + tap) * p.channels_in + c,
                           taps * p.channels_in);
        }
      });
    }
  }
}

}  // namespace troupe::cpu::TROUPE_ISA
