#include "kernels/cpu/packed_convolution.hpp"

#include "kernels/cpu/vector.hpp"
#include "kernels/tiles.hpp"

#include <algorithm>
#include <vector>

namespace troupe::cpu::TROUPE_ISA {

namespace {

constexpr std::int64_t kTapsMax = 49;  // kernels of up to 7 x 7

// y (pixels, columns) = x (sources of pixels, taps x depth) w (taps x depth, columns): for the
// input gradient x is dy, and a tap's source lies on the other side.

struct Product {
  std::int64_t batch;
  std::int64_t height;  // of x
  std::int64_t width;
  std::int64_t depth;       // channels of x
  std::int64_t height_out;  // of y
  std::int64_t width_out;
  std::int64_t columns;  // channels of y
  std::int64_t kernel;
  std::int64_t stride;
  std::int64_t padding;
  bool backward;

  /// Where y's line `at` reads x's through tap `tap`; -1 for nowhere.
  std::int64_t source(std::int64_t at, std::int64_t tap, std::int64_t extent) const {
    const std::int64_t i = backward ? at + padding - tap : at * stride - padding + tap;
    if (i < 0 || (backward && i % stride != 0)) {
      return -1;
    }
    const std::int64_t from = backward ? i / stride : i;
    return from < extent ? from : -1;
  }

  std::int64_t taps() const { return kernel * kernel; }

  /// Whether a tile's rows are pixels of the same place in several images. Of small images that
  /// leaves out all multiplications by padding, and of a strided gradient those by what the stride
  /// stepped over; x is copied in that order, which only small images are worth.
  bool by_place() const { return width_out < kPlacesMin || (backward && stride > 1); }

  /// How many pixels one after the other read x through the same taps, and are not to share a tile
  /// with others, which would multiply each by the other's padding. Not of larger images, whose
  /// places nearly all have all taps, nor in runs of few tiles: both lose more by smaller tiles.
  std::int64_t run() const {
    const bool differ = width_out < kAlikeMin || (backward && stride > 1);
    return differ && batch >= kRunMin ? batch : batch * height_out * width_out;
  }

  /// For how many columns the weights are packed at a time. Where all of x stays in the second-level
  /// cache, two panels do with it. Not backward, where a panel's weights are far from each other.
  std::int64_t columns_each() const {
    const std::int64_t input_bytes =
        batch * height * width * depth * static_cast<std::int64_t>(sizeof(float));
    const bool small = input_bytes <= tiles().small_input_bytes;
    return small && by_place() && !backward ? std::min(columns, 2 * kTileWidth) : columns;
  }

 private:
  static constexpr std::int64_t kPlacesMin = 12;
  static constexpr std::int64_t kAlikeMin = 8;
  static constexpr std::int64_t kRunMin = 4 * kTileRows;
};

Product forward_of(const ConvolutionPlan& p) {
  return {p.batch,
          p.height,
          p.width,
          p.channels_in,
          p.height_out,
          p.width_out,
          p.channels_out,
          p.kernel,
          p.stride,
          p.padding,
          false};
}

Product gradient_of(const ConvolutionPlan& p) {
  return {p.batch,
          p.height_out,
          p.width_out,
          p.channels_out,
          p.height,
          p.width,
          p.channels_in,
          p.kernel,
          p.stride,
          p.padding,
          true};
}

/// (B, S, C) as (S, B, C).
void copy_by_place(
    const float* x, std::int64_t batch, std::int64_t places, std::int64_t depth, float* to) {
  for (std::int64_t place = 0; place < places; ++place) {
    for (std::int64_t b = 0; b < batch; ++b) {
      to = std::copy_n(x + (b * places + place) * depth, depth, to);
    }
  }
}

/// `columns` columns of w (O, taps, C) from `first` on, as (columns / kTileWidth, taps, C, kTileWidth).
void pack_forward(const ConvolutionPlan& p,
                  const float* w,
                  std::int64_t first,
                  std::int64_t columns,
                  float* packed) {
  const std::int64_t row = p.kernel * p.kernel * p.channels_in;
  for (std::int64_t o = 0; o < columns; o += kLanes) {
    float* const panel = packed + o / kTileWidth * kTileWidth * row + o % kTileWidth;
    for (std::int64_t i = 0; i < row; i += kLanes) {
      Floats block[kLanes];
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        block[lane] = load(w + (first + o + lane) * row + i);
      }
      transpose(block);
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        store(panel + (i + lane) * kTileWidth, block[lane]);
      }
    }
  }
}

/// w (O, taps, C) as (C / kTileWidth, taps, O, kTileWidth).
void pack_gradient(const ConvolutionPlan& p, const float* w, float* packed) {
  const std::int64_t taps = p.kernel * p.kernel;
  const std::int64_t O = p.channels_out;
  for (std::int64_t o = 0; o < O; ++o) {
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      for (std::int64_t c = 0; c < p.channels_in; c += kTileWidth, w += kTileWidth) {
        copy_width(w, packed + ((c / kTileWidth * taps + tap) * O + o) * kTileWidth);
      }
    }
  }
}

constexpr std::int64_t kBlockRows =
    64 * kTileRows;  // the most pixels that a block may have (Tiles::pixels)

/// Where the pixels of a block read and write.
struct Block {
  const float* from[kTapsMax][kBlockRows];  // by tap; `zeros` for nowhere
  float* to[kBlockRows];
};

/// Goes over y's pixels in the order of the tiles' rows.
class Pixels {
 public:
  Pixels(const Product& p, const float* x, const float* zeros, float* y)
      : p_(p), by_place_(p.by_place()), x_(x), zeros_(zeros), y_(y) {
    const std::int64_t step = (by_place_ ? p.batch : 1) * p.depth;  // of x, to the next pixel
    fill_offsets(p.height_out, p.height, step * p.width, offset_y_);
    fill_offsets(p.width_out, p.width, step, offset_x_);
  }

  void next(std::int64_t rows, Block& block) {
    const std::int64_t image_step = p_.depth * (by_place_ ? 1 : p_.height * p_.width);
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* image = x_ + image_ * image_step;
      const std::int64_t place = row_ * p_.width_out + column_;
      block.to[r] = y_ + (image_ * p_.height_out * p_.width_out + place) * p_.columns;
      std::int64_t tap = 0;
      for (std::int64_t ky = 0; ky < p_.kernel; ++ky) {
        const std::int64_t down = offset_y_[static_cast<std::size_t>(row_ * p_.kernel + ky)];
        const std::int64_t* across = offset_x_.data() + column_ * p_.kernel;
        for (std::int64_t kx = 0; kx < p_.kernel; ++kx, ++tap) {
          const bool inside = down >= 0 && across[kx] >= 0;
          block.from[tap][r] = inside ? image + down + across[kx] : zeros_;
        }
      }
      advance();
    }
  }

 private:
  /// Offsets of the sources of y's lines by tap; -1 for nowhere.
  void fill_offsets(std::int64_t lines,
                    std::int64_t extent,
                    std::int64_t step,
                    std::vector<std::int64_t>& offsets) const {
    for (std::int64_t line = 0; line < lines; ++line) {
      for (std::int64_t tap = 0; tap < p_.kernel; ++tap) {
        const std::int64_t from = p_.source(line, tap, extent);
        offsets.push_back(from < 0 ? -1 : from * step);
      }
    }
  }

  void advance() {
    if (by_place_ && ++image_ < p_.batch) {
      return;
    }
    image_ = by_place_ ? 0 : image_;
    if (++column_ == p_.width_out) {
      column_ = 0;
      if (++row_ == p_.height_out) {
        row_ = 0;
        ++image_;  // the end of all, where by_place_
      }
    }
  }

  const Product& p_;
  bool by_place_;
  const float* x_;
  const float* zeros_;
  float* y_;
  std::vector<std::int64_t> offset_y_, offset_x_;
  std::int64_t image_ = 0, row_ = 0, column_ = 0;
};

/// sum[r, c] += rows[r][k] b[k kTileWidth + c].
template <int rows>
[[gnu::always_inline]] inline void add_rows(Tile<Floats, rows, kTileVectors>& tile,
                                            std::int64_t depth,
                                            const float* const* from,
                                            const float* b) {
  const float* row[rows];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    row[r] = from[r];
  }
  for (std::int64_t k = 0; k < depth; ++k, b += kTileWidth) {
    const Floats first = load(b);
    const Floats second = load(b + kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const Floats left = broadcast(row[r][k]);
      tile.sum[r][0] = multiply_add(left, first, tile.sum[r][0]);
      tile.sum[r][1] = multiply_add(left, second, tile.sum[r][1]);
    }
  }
}

/// Has the pixels [first, end) of a block fetched from the line of their images that pixels before them have not read: that of
/// the middle tap in the last row of taps, which is the first one where the backward pass has them mirrored.
void fetch(const Product& p, const Block& block, std::int64_t first, std::int64_t end) {
  constexpr std::int64_t kLine = 64 / sizeof(float);
  const std::int64_t middle = p.kernel / 2;
  const auto& from = block.from[p.backward ? middle : p.taps() - 1 - middle];
  for (std::int64_t r = first; r < end; ++r) {
    for (std::int64_t k = 0; k < p.depth; k += kLine) {
      __builtin_prefetch(from[r] + k);
    }
  }
}

/// The taps [tap, tap_end) of a tile, whose columns begin at `column`.
template <int rows>
void multiply_tile(const Product& p,
                   const Block& block,
                   std::int64_t first,
                   std::int64_t tap,
                   std::int64_t tap_end,
                   const float* zeros,
                   const float* w,
                   const float* bias,
                   std::int64_t column) {
  Tile<Floats, rows, kTileVectors> tile;
  tile.for_each([&](Floats& sum, int r, int v) {
    const std::int64_t at = column + v * kLanes;
    __builtin_prefetch(block.to[first + r] + at, 1);
    sum = tap > 0 ? load(block.to[first + r] + at) : bias ? load(bias + at) : Floats{};
  });
  for (; tap < tap_end; ++tap) {
    const float* const* from = &block.from[tap][first];
    if (std::any_of(from, from + rows, [&](const float* row) { return row != zeros; })) {
      add_rows<rows>(tile, p.depth, from, w + tap * p.depth * kTileWidth);
    }
  }
  tile.for_each([&](const Floats& sum, int r, int v) {
    store(block.to[first + r] + column + v * kLanes, sum);
  });
}

/// Of multiply().
std::int64_t scratch_floats(const Product& p) {
  const std::int64_t copy = p.by_place() ? p.batch * p.height * p.width * p.depth : 0;
  return p.taps() * p.depth * p.columns_each() + p.depth + copy;
}

/// pack(first, columns, packed) packs columns of the weights.
template <class Pack>
void multiply(
    Backend& backend, const Product& p, const float* x, Pack pack, const float* bias, float* y) {
  float* const packed = backend.scratch(scratch_floats(p));
  float* const scratch = packed + p.taps() * p.depth * p.columns_each();
  const std::int64_t pixels = p.batch * p.height_out * p.width_out;
  std::fill_n(scratch, p.depth, 0.0f);
  const float* zeros = scratch;
  if (p.by_place()) {
    copy_by_place(x, p.batch, p.height * p.width, p.depth, scratch + p.depth);
    x = scratch + p.depth;
  }
  // Sums of a panel's taps stay in registers, and go on where they were with the next panel: its size changes no bit.
  constexpr std::int64_t kPanelRow = kTileWidth * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t chunk = tiles().panel_bytes / kPanelRow;
  const std::int64_t chunks = (p.taps() * p.depth + chunk - 1) / chunk;
  const std::int64_t taps_each = (p.taps() + chunks - 1) / chunks;
  const std::int64_t run = p.run();
  const std::int64_t most = std::clamp<std::int64_t>(tiles().pixels / kTileRows, 2, 64) * kTileRows;
  const std::int64_t block_rows = run < pixels ? most : most / 2;
  const bool fetches = !p.by_place();  // else x was copied just now
  Block block;
  const auto multiply_block = [&](std::int64_t pixel,
                                  std::int64_t rows,
                                  std::int64_t tap,
                                  const float* w,
                                  std::int64_t column) {
    const std::int64_t tap_end = std::min(p.taps(), tap + taps_each);
    for (std::int64_t begin = 0, end = 0; begin < rows; begin = end) {
      end = std::min(rows, begin + run - (pixel + begin) % run);
      for_each_piece<kTileRows>(end - begin, [&](std::int64_t first, auto tile_rows) {
        if (fetches && column == 0 && tap == 0) {
          const std::int64_t next = begin + first + tile_rows;
          fetch(p, block, next, std::min(rows, next + tile_rows));
        }
        multiply_tile<tile_rows>(p, block, begin + first, tap, tap_end, zeros, w, bias, column);
      });
    }
  };
  for (std::int64_t first = 0; first < p.columns; first += p.columns_each()) {
    const std::int64_t columns = std::min(p.columns - first, p.columns_each());
    pack(first, columns, packed);
    Pixels each(p, x, zeros, y);
    for (std::int64_t pixel = 0; pixel < pixels; pixel += block_rows) {
      const std::int64_t rows = std::min(block_rows, pixels - pixel);
      each.next(rows, block);
      for (std::int64_t tap = 0; tap < p.taps(); tap += taps_each) {
        for (std::int64_t c = 0; c < columns; c += kTileWidth) {
          multiply_block(pixel, rows, tap, packed + c * p.taps() * p.depth, first + c);
        }
      }
    }
  }
}

}  // namespace

bool packed_convolution_takes(const ConvolutionPlan& p) {
  return p.channels_in % kTileWidth == 0 && p.channels_out % kTileWidth == 0 && p.kernel > 1 &&
         p.kernel * p.kernel <= kTapsMax && p.batch >= kTileRows;
}

void packed_convolution_forward(Backend& backend,
                                const ConvolutionPlan& plan,
                                const float* x,
                                const float* w,
                                const float* bias,
                                float* y) {
  const auto pack = [&](std::int64_t first, std::int64_t columns, float* packed) {
    pack_forward(plan, w, first, columns, packed);
  };
  multiply(backend, forward_of(plan), x, pack, bias, y);
}

void packed_convolution_input_gradient(
    Backend& backend, const ConvolutionPlan& plan, const float* dy, const float* w, float* dx) {
  const auto pack = [&](std::int64_t /*first*/, std::int64_t /*columns*/, float* packed) {
    pack_gradient(plan, w, packed);  // all columns at once
  };
  multiply(backend, gradient_of(plan), dy, pack, nullptr, dx);
}

}  // namespace troupe::cpu::TROUPE_ISA
