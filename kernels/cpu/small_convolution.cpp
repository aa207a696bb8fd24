#include "kernels/cpu/small_convolution.hpp"

#include "kernels/cpu/vector.hpp"

#include <algorithm>

namespace troupe::cpu::TROUPE_ISA {

namespace {

std::int64_t rounded_up(std::int64_t n, std::int64_t to) {
  return (n + to - 1) / to * to;
}

/// The most rows of a tile that stay in registers, sums and addresses both.
template <class V, int vectors, class Row>
constexpr int kRowsMax = std::min<int>(std::is_same_v<Row, RowsApart> ? (vectors == 1 ? 8 : 6) : 14,
                                       static_cast<int>(kRegisters - 2 - vectors) / vectors);

/// f.operator()<V, vectors>() with tiles as wide as `columns` asks for, within what the registers
/// hold.
template <class F>
void with_width(std::int64_t columns, F f) {
  if (columns <= 8) {
    f.template operator()<Floats8, 1>();
  } else if (columns <= kLanes) {
    f.template operator()<Floats, 1>();
  } else {
    f.template operator()<Floats, 2>();
  }
}

/// The images of a batch with their zeros around them, one at a time.
class Padded {
 public:
  Padded(const ConvolutionPlan& plan, const float* x, float* scratch)
      : plan_(plan), x_(x), scratch_(scratch), width_(plan.width + 2 * plan.padding) {
    std::fill_n(scratch_, floats(plan), 0.0f);
  }

  static std::int64_t floats(const ConvolutionPlan& plan) {
    const std::int64_t height = plan.height + 2 * plan.padding;
    const std::int64_t width = plan.width + 2 * plan.padding;
    return plan.padding > 0 ? rounded_up(height * width * plan.channels_in, 16) : 0;
  }

  std::int64_t row_stride() const { return width_ * plan_.channels_in; }

  const float* image(std::int64_t b) {
    const std::int64_t row = plan_.width * plan_.channels_in;
    const float* from = x_ + b * plan_.height * row;
    if (plan_.padding == 0) {
      return from;
    }
    for (std::int64_t iy = 0; iy < plan_.height; ++iy) {
      std::copy_n(
          from + iy * row,
          row,
          scratch_ + (iy + plan_.padding) * row_stride() + plan_.padding * plan_.channels_in);
    }
    return scratch_;
  }

 private:
  const ConvolutionPlan& plan_;
  const float* x_;
  float* scratch_;
  std::int64_t width_;
};

// -- forward ----------------------------------------------------------------------------
//
// y (pixels, O) = x (pixels, kernel x kernel x C) w: the rows of a tile are neighbouring pixels.

template <class V, int vectors, class Row>
[[gnu::noinline]] void forward(const ConvolutionPlan p,
                               Padded& padded,
                               const float* packed,
                               const float* bias,
                               bool relu,
                               Row row,
                               float* y) {
  constexpr std::int64_t kWidth = kLanesOf<V> * vectors;
  const std::int64_t run = p.kernel * p.channels_in;
  const std::int64_t step = p.stride * p.channels_in;
  const float* const end = y + p.batch * p.height_out * p.width_out * p.channels_out;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const float* image = padded.image(b);
    for (std::int64_t oy = 0; oy < p.height_out; ++oy) {
      float* to = y + (b * p.height_out + oy) * p.width_out * p.channels_out;
      const float* from = image + oy * p.stride * padded.row_stride();
      for_each_piece<kRowsMax<V, vectors, Row>>(p.width_out, [&](std::int64_t first, auto rows) {
        for (std::int64_t o = 0; o < p.channels_out; o += kWidth) {
          Tile<V, rows, vectors> tile;
          tile.for_each([&](V& sum, int, int v) { sum = load<V>(bias + o + v * kLanesOf<V>); });
          const float* weights = packed + o * run * p.kernel;
          for (std::int64_t ky = 0; ky < p.kernel; ++ky) {
            tile.add_product(
                run, from + ky * padded.row_stride() + first * step, row, 1, weights, kWidth);
            weights += run * kWidth;
          }
          if (relu) {  // a NaN is handed on, as in functors/activation.hpp
            tile.for_each([](V& sum, int, int) { sum = sum < V{} ? V{} : sum; });
          }
          float* pixel = to + first * p.channels_out + o;
          const std::int64_t count = p.channels_out - o;
          // Lanes beyond the last channel run on into the next pixel, which is written afterwards.
          const bool runs_on =
              count == p.channels_out && pixel + (rows - 1) * p.channels_out + kWidth <= end;
          if (count >= kWidth || runs_on) {
            tile.write(pixel, p.channels_out);
          } else {
            float sums[rows * kWidth];
            tile.write(sums, kWidth);
            for (std::int64_t r = 0; r < rows; ++r) {
              std::copy_n(sums + r * kWidth, std::min(count, kWidth), pixel + r * p.channels_out);
            }
          }
        }
      });
    }
  }
}

// -- input gradient -----------------------------------------------------------------------
//
// For a row of dx: t (pixels of dy, kernel x C) = the sum over the filter's rows of dy (pixels, O)
// w (O, kernel x C); then each pixel of dx adds up its `kernel` shares of t. Stride 1.

/// The places [first, last) of a filter along one axis that reach an output from input `index`.
struct Reaching {
  std::int64_t first;
  std::int64_t last;

  Reaching(std::int64_t index, std::int64_t padding, std::int64_t kernel, std::int64_t outputs)
      : first(std::max<std::int64_t>(0, index + padding - outputs + 1)),
        last(std::min(kernel, index + padding + 1)) {}
};

/// dx[pixel, c] = the sum over kx of t[pixel + padding - kx, kx C + c], for one row.
void gather_shares(const ConvolutionPlan p,
                   const float* t,
                   std::int64_t t_stride,
                   float* dx,
                   const float* dx_end) {
  for (std::int64_t ix = 0; ix < p.width; ++ix) {
    const Reaching reaching(ix, p.padding, p.kernel, p.width_out);
    for (std::int64_t c = 0; c < p.channels_in; c += 8) {
      const float* share = t + (ix + p.padding) * t_stride + c;
      Floats8 sum{};
      for (std::int64_t kx = reaching.first; kx < reaching.last; ++kx) {
        sum += load<Floats8>(share + kx * (p.channels_in - t_stride));
      }
      float* to = dx + ix * p.channels_in + c;
      if (to + 8 <= dx_end) {
        store(to, sum);  // may run on into the next pixel
      } else {
        store_part(to, sum, std::min<std::int64_t>(8, p.channels_in - c));
      }
    }
  }
}

template <class V, int vectors>
[[gnu::noinline]] void input_gradient(
    const ConvolutionPlan p, const float* dy, const float* packed, float* t, float* dx) {
  constexpr std::int64_t kWidth = kLanesOf<V> * vectors;
  const std::int64_t columns = rounded_up(p.kernel * p.channels_in, kWidth);
  const std::int64_t dx_row = p.width * p.channels_in;
  const std::int64_t dy_row = p.width_out * p.channels_out;
  const float* const dx_end = dx + p.batch * p.height * dx_row;
  for (std::int64_t row = 0; row < p.batch * p.height; ++row) {
    const std::int64_t iy = row % p.height;
    const Reaching reaching(iy, p.padding, p.kernel, p.height_out);
    const float* from = dy + (row / p.height * p.height_out + iy + p.padding) * dy_row;
    for_each_piece<kRowsMax<V, vectors, RowsApart>>(
        p.width_out, [&](std::int64_t first, auto rows) {
          for (std::int64_t column = 0; column < columns; column += kWidth) {
            Tile<V, rows, vectors> tile;
            tile.clear();
            for (std::int64_t ky = reaching.first; ky < reaching.last; ++ky) {
              tile.add_product(p.channels_out,
                               from - ky * dy_row + first * p.channels_out,
                               RowsApart{p.channels_out},
                               1,
                               packed + ky * p.channels_out * columns + column,
                               columns);
            }
            tile.write(t + first * columns + column, columns);
          }
        });
    gather_shares(p, t, columns, dx + row * dx_row, dx_end);
  }
}

// -- weight gradient ------------------------------------------------------------------------
//
// dw (kernel x kernel x C, O) = x (pixels, kernel x kernel x C) transposed, times dy (pixels, O):
// the rows of a tile are neighbouring taps. Images are summed one by one.

template <class V, int vectors, class Row>
[[gnu::noinline]] void weight_gradient(
    const ConvolutionPlan p,
    Padded& padded,
    const float* dy,
    const float* dy_last,  // the last image's, with room behind it
    Row row,
    std::int64_t filter_rows,  // that one tile spans: a tile begins where a run of `row` does
    float* sums) {             // (kernel x kernel x C, columns)
  constexpr std::int64_t kWidth = kLanesOf<V> * vectors;
  const std::int64_t columns = rounded_up(p.channels_out, kWidth);
  const std::int64_t run = p.kernel * p.channels_in;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const float* image = padded.image(b);
    const float* gradient =
        b + 1 < p.batch ? dy + b * p.height_out * p.width_out * p.channels_out : dy_last;
    for (std::int64_t ky = 0; ky < p.kernel; ky += filter_rows) {
      const std::int64_t taps = std::min(filter_rows, p.kernel - ky) * run;
      for_each_piece<kRowsMax<V, vectors, Row>>(taps, [&](std::int64_t first, auto rows) {
        for (std::int64_t column = 0; column < columns; column += kWidth) {
          Tile<V, rows, vectors> tile;
          tile.clear();
          for (std::int64_t oy = 0; oy < p.height_out; ++oy) {
            tile.add_product(p.width_out,
                             image + (oy * p.stride + ky) * padded.row_stride() + first,
                             row,
                             p.stride * p.channels_in,
                             gradient + oy * p.width_out * p.channels_out + column,
                             p.channels_out);
          }
          tile.for_each([&](V& sum, int r, int v) {
            float* to = sums + (ky * run + first + r) * columns + column + v * kLanesOf<V>;
            store(to, load<V>(to) + sum);
          });
        }
      });
    }
  }
}

}  // namespace

// Where these win was measured against oneDNN 2.6 with AVX2: by 1.2 to 2 times on LeNet's shapes.
// Elsewhere oneDNN is as fast or faster, but for weight gradients that it cannot be trusted with.

bool small_forward(const ConvolutionPlan& p) {
  return p.channels_out <= 16;
}

bool small_input_gradient(const ConvolutionPlan& p) {
  return p.channels_in < 8 && p.stride == 1;
}

bool small_weight_gradient(const ConvolutionPlan& p) {
  const bool fills_tiles = p.channels_in >= 6 || (p.channels_in == 1 && p.channels_out <= 8);
  return weight_gradient_overruns(p) ||
         (p.channels_in <= 16 && p.channels_out <= 16 && fills_tiles);
}

void small_convolution_forward(Backend& backend,
                               const ConvolutionPlan& plan,
                               const float* x,
                               const float* w,
                               const float* bias,
                               bool relu,
                               float* y) {
  const ConvolutionPlan& p = plan;
  with_width(p.channels_out, [&]<class V, int vectors>() {
    constexpr std::int64_t kWidth = kLanesOf<V> * vectors;
    const std::int64_t columns = rounded_up(p.channels_out, kWidth);
    const std::int64_t taps = p.kernel * p.kernel * p.channels_in;
    // (columns / kWidth, taps, kWidth), then the bias, then an image.
    float* packed = backend.scratch(columns * (taps + 1) + Padded::floats(p));
    float* padded_bias = packed + columns * taps;
    std::fill_n(packed, columns * (taps + 1), 0.0f);
    if (bias) {
      std::copy_n(bias, p.channels_out, padded_bias);
    }
    for (std::int64_t o = 0; o < p.channels_out; ++o) {
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        packed[o / kWidth * taps * kWidth + tap * kWidth + o % kWidth] = w[o * taps + tap];
      }
    }
    Padded padded(p, x, padded_bias + columns);
    if (p.stride * p.channels_in == 1) {
      forward<V, vectors>(p, padded, packed, padded_bias, relu, RowsSideBySide{}, y);
    } else {
      forward<V, vectors>(
          p, padded, packed, padded_bias, relu, RowsApart{p.stride * p.channels_in}, y);
    }
  });
}

void small_convolution_input_gradient(
    Backend& backend, const ConvolutionPlan& plan, const float* dy, const float* w, float* dx) {
  const ConvolutionPlan& p = plan;
  const std::int64_t run = p.kernel * p.channels_in;
  with_width(run, [&]<class V, int vectors>() {
    const std::int64_t columns = rounded_up(run, kLanesOf<V> * vectors);
    // (kernel, O, columns), then t; gather_shares may read a vector beyond its last column.
    const std::int64_t packed_floats = p.kernel * p.channels_out * columns;
    const std::int64_t floats = packed_floats + p.width_out * columns + 16;
    float* packed = backend.scratch(floats);
    std::fill_n(packed, floats, 0.0f);
    for (std::int64_t o = 0; o < p.channels_out; ++o) {
      for (std::int64_t ky = 0; ky < p.kernel; ++ky) {
        std::copy_n(
            w + (o * p.kernel + ky) * run, run, packed + (ky * p.channels_out + o) * columns);
      }
    }
    input_gradient<V, vectors>(p, dy, packed, packed + packed_floats, dx);
  });
}

void small_convolution_weight_gradient(Backend& backend,
                                       const ConvolutionPlan& plan,
                                       const float* x,
                                       const float* dy,
                                       float* dw,
                                       bool accumulate) {
  const ConvolutionPlan& p = plan;
  const std::int64_t run = p.kernel * p.channels_in;
  const std::int64_t taps = p.kernel * run;
  with_width(p.channels_out, [&]<class V, int vectors>() {
    const std::int64_t columns = rounded_up(p.channels_out, kLanesOf<V> * vectors);
    const std::int64_t image_floats = p.height_out * p.width_out * p.channels_out;
    float* sums = backend.scratch(taps * columns + image_floats + columns + Padded::floats(p));
    std::fill_n(sums, taps * columns, 0.0f);
    float* dy_last = sums + taps * columns;
    std::copy_n(dy + (p.batch - 1) * image_floats, image_floats, dy_last);
    std::fill_n(dy_last + image_floats, columns, 0.0f);
    Padded padded(p, x, dy_last + image_floats + columns);
    const auto compute = [&](auto row, std::int64_t filter_rows) {
      weight_gradient<V, vectors>(p, padded, dy, dy_last, row, filter_rows, sums);
    };
    // One channel: a filter's row is too short to fill a tile, so that as many as fit make one.
    bool computed = false;
    if constexpr (vectors == 1 && kLanesOf<V> == 8) {
      const auto compute_in_runs = [&]<int length>(RowsInRuns<length> row) {
        compute(row, kRowsMax<V, vectors, RowsInRuns<length>> / length);
      };
      computed = run == 3 || run == 5;
      if (run == 3) {
        compute_in_runs(RowsInRuns<3>{padded.row_stride()});
      } else if (run == 5) {
        compute_in_runs(RowsInRuns<5>{padded.row_stride()});
      }
    }
    if (!computed) {
      compute(RowsSideBySide{}, 1);
    }
    for (std::int64_t o = 0; o < p.channels_out; ++o) {
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        float& to = dw[o * taps + tap];
        to = (accumulate ? to : 0.0f) + sums[tap * columns + o];
      }
    }
  });
}

}  // namespace troupe::cpu::TROUPE_ISA
