#include "kernels/cpu/packed_matmul.hpp"

#include "kernels/cpu/vector.hpp"
#include "kernels/tiles.hpp"

#include <algorithm>

namespace troupe::cpu::TROUPE_ISA {

namespace {

// A block of the left factor (Tiles::product_rows x kProductDepth) stays in the second-level cache, a panel of
// the right one (kProductDepth x kWidth) in the first.
constexpr int kVectors = 2;
constexpr std::int64_t kWidth = kVectors * kLanes;
constexpr int kFetchedRows = 4;
constexpr int kTileRows =
    static_cast<int>(kRegisters - 2 - kVectors) / kVectors;  // 6 with 16 registers, 14 with 32

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
  const std::int64_t row_step = plan.columns;
  const std::int64_t whole = columns / kLanes * kLanes;
  for (std::int64_t k = 0; k < depth; ++k) {
    const float* row = b + k * row_step;
    for (std::int64_t c = 0; c < whole; c += kLanes) {
      store(packed + c / kWidth * kWidth * depth + k * kWidth + c % kWidth, load(row + c));
    }
    for (std::int64_t c = whole; c < (columns + kWidth - 1) / kWidth * kWidth; ++c) {
      packed[c / kWidth * kWidth * depth + k * kWidth + c % kWidth] = c < columns ? row[c] : 0.0f;
    }
  }
}

struct Epilogue {
  bool add_to_c;
  const float* bias;  // null for none
};

template <int rows>
void multiply_tile(const float* left,
                   const float* right,
                   std::int64_t depth,
                   const Epilogue epilogue,
                   float* c,
                   std::int64_t c_row,
                   std::int64_t columns) {
  for (int r = 0; r < rows; ++r) {
    __builtin_prefetch(c + r * c_row);
  }
  Tile<Floats, rows, kVectors> tile;
  tile.clear();
  tile.add_product(depth, left, RowsSideBySide{}, rows, right, kWidth);
  if (columns == kWidth) {
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
  float sums[rows * kWidth];
  tile.write(sums, kWidth);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t n = 0; n < columns; ++n) {
      float sum = sums[r * kWidth + n];
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
        for (std::int64_t n = strip; n < strip_end; n += kWidth) {
          const Epilogue epilogue{.add_to_c = p.accumulate || k > 0,
                                  .bias = p.bias && last ? bias + n : nullptr};
          for_each_piece<kTileRows>(rows, [&](std::int64_t first, auto tile_rows) {
            for (int row = 0; row < kFetchedRows && next < next_end; ++row, next += p.columns) {
              for (std::int64_t at = 0; at < strip_width; at += 16) {
                __builtin_prefetch(next + at, 0, 2);
              }
            }
            multiply_tile<tile_rows>(left + first * depth,
                                     right + (n - strip) * depth,
                                     depth,
                                     epilogue,
                                     c + (m + first) * p.columns + n,
                                     p.columns,
                                     std::min(kWidth, strip_end - n));
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

}  // namespace troupe::cpu::TROUPE_ISA
