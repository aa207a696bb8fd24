#include "kernels/cpu/packed_matmul.hpp"

#include "kernels/cpu/vector.hpp"
#include "kernels/matmul.hpp"
#include "kernels/tiles.hpp"

#include <algorithm>

namespace troupe::cpu::TROUPE_ISA {

namespace {

// A block of the left factor (Tiles::product_rows x kProductDepth) stays in the second-level cache, a panel of
// the right one (kProductDepth x kTileWidth) in the first.
constexpr int kFetchedRows = 4;
// Of a left factor that is read where it lies: a pointer a row, of the registers that the one loop here leaves.
constexpr int kRowsApart = std::min(kTileRows, 11);

/// to[k kTileWidth + i] = from[i from_row + k] for i < kLanes and k in [0, depth).
void pack_across(const float* from, std::int64_t from_row, std::int64_t depth, float* to) {
  const std::int64_t whole = depth / kLanes * kLanes;
  for (std::int64_t k = 0; k < whole; k += kLanes) {
    Floats rows[kLanes];
    for (std::int64_t i = 0; i < kLanes; ++i) {
      rows[i] = load(from + i * from_row + k);
    }
    transpose(rows);
    for (std::int64_t i = 0; i < kLanes; ++i) {
      store(to + (k + i) * kTileWidth, rows[i]);
    }
  }
  for (std::int64_t k = whole; k < depth; ++k) {
    for (std::int64_t i = 0; i < kLanes; ++i) {
      to[k * kTileWidth + i] = from[i * from_row + k];
    }
  }
}

/// Rows [0, rows) and k in [0, depth), tile by tile, within a tile by k.
void pack_left(
    const MatmulPlan& p, const float* a, std::int64_t rows, std::int64_t depth, float* packed) {
  const std::int64_t row_step = p.transpose_a ? 1 : p.inner;
  const std::int64_t k_step = p.transpose_a ? p.rows : 1;
  for_each_piece<kTileRows>(rows, [&](std::int64_t first, auto tile_rows) {
    float* to = packed + first * depth;
    for (std::int64_t k = 0; k < depth; ++k) {
      for (int r = 0; r < tile_rows; ++r) {
        *to++ = a[(first + r) * row_step + k * k_step];
      }
    }
  });
}

/// `columns` of the right factor, panel by panel, zeros beyond the last.
void pack_right(const MatmulPlan& plan,
                const float* b,
                std::int64_t columns,
                std::int64_t depth,
                float* packed) {
  const std::int64_t whole = columns / kLanes * kLanes;
  const auto at = [&](std::int64_t c) {
    return packed + c / kTileWidth * kTileWidth * depth + c % kTileWidth;
  };
  const std::int64_t row_step = plan.transpose_b ? 1 : plan.columns;
  const std::int64_t column_step = plan.transpose_b ? plan.inner : 1;
  if (plan.transpose_b) {
    for (std::int64_t c = 0; c < whole; c += kLanes) {
      pack_across(b + c * plan.inner, plan.inner, depth, at(c));
    }
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    const float* row = b + k * row_step;
    for (std::int64_t c = plan.transpose_b ? whole : 0; c < whole; c += kLanes) {
      store(at(c) + k * kTileWidth, load(row + c));
    }
    for (std::int64_t c = whole; c < (columns + kTileWidth - 1) / kTileWidth * kTileWidth; ++c) {
      at(c)[k * kTileWidth] = c < columns ? row[c * column_step] : 0.0f;
    }
  }
}

struct Epilogue {
  bool add_to_c;
  const float* bias;  // null for none
};

/// `step` is from one k of the left factor to the next.
template <int rows, int step, class Row>
void multiply_tile(const float* left,
                   Row row,
                   const float* right,
                   std::int64_t depth,
                   const Epilogue epilogue,
                   float* c,
                   std::int64_t c_row,
                   std::int64_t columns) {
  for (int r = 0; r < rows; ++r) {
    __builtin_prefetch(c + r * c_row);
  }
  Tile<Floats, rows, kTileVectors> tile;
  tile.clear();
  tile.add_product(depth, left, row, step, right, kTileWidth);
  if (columns == kTileWidth) {
    tile.for_each([&](Floats& sum, int r, int v) {
      float* to = c + r * c_row + v * kLanes;
      if (epilogue.add_to_c) {
        sum += load(to);
      }
      if (epilogue.bias) {
        sum += load(epilogue.bias + v * kLanes);
      }
      store(to, sum);
    });
    return;
  }
  float sums[rows * kTileWidth];
  tile.write(sums, kTileWidth);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t n = 0; n < columns; ++n) {
      float sum = sums[r * kTileWidth + n];
      sum += epilogue.add_to_c ? c[r * c_row + n] : 0.0f;
      sum += epilogue.bias ? epilogue.bias[n] : 0.0f;
      c[r * c_row + n] = sum;
    }
  }
}

}  // namespace

void packed_matmul(Backend& backend,
                   const MatmulPlan& plan,
                   const float* a,
                   const float* b,
                   const float* bias,
                   float* c) {
  const MatmulPlan p = plan;
  const std::int64_t block_rows = std::min(tiles().product_rows, p.rows);
  const std::int64_t strip_width =
      tiles().product_columns;  // of panels, so that memory is read in longer runs
  float* left = backend.scratch((block_rows + strip_width) * kProductDepth);
  float* right = left + block_rows * kProductDepth;
  for (std::int64_t k = 0; k < p.inner; k += kProductDepth) {
    const std::int64_t depth = std::min(kProductDepth, p.inner - k);
    const bool last = k + depth == p.inner;
    for (std::int64_t m = 0; m < p.rows; m += block_rows) {
      const std::int64_t rows = std::min(block_rows, p.rows - m);
      pack_left(p, a + (p.transpose_a ? k * p.rows + m : m * p.inner + k), rows, depth, left);
      for (std::int64_t strip = 0; strip < p.columns; strip += strip_width) {
        const std::int64_t strip_end = std::min(strip + strip_width, p.columns);
        pack_right(p, b + k * p.columns + strip, strip_end - strip, depth, right);
        const float* next =
            b + k * p.columns + strip_end;  // fetched row by row while this strip is multiplied
        const float* const next_end = strip_end < p.columns ? next + depth * p.columns : next;
        for (std::int64_t n = strip; n < strip_end; n += kTileWidth) {
          const Epilogue epilogue{.add_to_c = p.accumulate || k > 0,
                                  .bias = p.bias && last ? bias + n : nullptr};
          for_each_piece<kTileRows>(rows, [&](std::int64_t first, auto tile_rows) {
            for (int row = 0; row < kFetchedRows && next < next_end; ++row, next += p.columns) {
              for (std::int64_t at = 0; at < strip_width; at += 16) {
                __builtin_prefetch(next + at, 0, 2);
              }
            }
            multiply_tile<tile_rows, tile_rows>(left + first * depth,
                                                RowsSideBySide{},
                                                right + (n - strip) * depth,
                                                depth,
                                                epilogue,
                                                c + (m + first) * p.columns + n,
                                                p.columns,
                                                std::min(kTileWidth, strip_end - n));
          });
        }
      }
    }
  }
}

bool packed_matmul_wins(const MatmulPlan& p) {
  const bool columns_collide =
      p.columns % 512 == 0 || (p.transpose_a && p.rows % 512 == 0 && p.columns >= 64);
  return !onednn_has_avx512() && !p.transpose_b && columns_collide && p.rows >= 16 && p.inner >= 16;
}

std::int64_t panel_floats(std::int64_t inner, std::int64_t columns) {
  // With AVX2 oneDNN's products are as fast alone, and faster within a network.
  return kLanes == 8 ? 0 : (columns + kTileWidth - 1) / kTileWidth * kTileWidth * inner;
}

void pack_panels(Stream& /*stream*/, const Tensor& b, bool transpose_b, const Tensor& panels) {
  const MatmulPlan plan{.columns = b.shape()[transpose_b ? 0 : 1],
                        .inner = b.shape()[transpose_b ? 1 : 0],
                        .transpose_b = transpose_b};
  pack_right(plan, b.data<float>(), plan.columns, plan.inner, panels.data<float>());
}

void multiply_by_panels(
    Stream& /*stream*/, const Tensor& a, const Tensor& panels, const Tensor& c, bool accumulate) {
  const float* const left = a.data<float>();
  const float* const right = panels.data<float>();
  float* const to = c.data<float>();
  const std::int64_t inner = a.shape()[1];
  const std::int64_t columns = c.shape()[1];
  for (std::int64_t n = 0; n < columns; n += kTileWidth) {
    for_each_piece<kRowsApart>(c.shape()[0], [&](std::int64_t first, auto rows) {
      multiply_tile<rows, 1>(left + first * inner,
                             RowsApart{inner},
                             right + n * inner,
                             inner,
                             {.add_to_c = accumulate, .bias = nullptr},
                             to + first * columns + n,
                             columns,
                             std::min(kTileWidth, columns - n));
    });
  }
}

}  // namespace troupe::cpu::TROUPE_ISA
