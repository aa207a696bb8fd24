#include "kernels/cpu/packed_matmul.hpp"

#include "kernels/cpu/backend.hpp"
#include "kernels/cpu/vector.hpp"

#include <algorithm>

namespace troupe::cpu {

namespace {

// A block of the left factor (kRows x kDepth, 256 KiB) stays in the second-level cache, a panel of the right one
// (kDepth x kWidth) in the first.
constexpr std::int64_t kDepth = 256;
constexpr std::int64_t kRows = 252;
constexpr int kVectors = 2;
constexpr std::int64_t kWidth = kVectors * kLanes;
constexpr int kTileRows = kRegisters == 32 ? 14 : 6;

/// Rows [0, rows) and k in [0, depth), tile by tile, within a tile by k.
void pack_left(const MatmulPlan& p, const float* a, std::int64_t rows, std::int64_t depth, float* packed) {
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

void pack_right(const MatmulPlan& p, const float* b, std::int64_t columns, std::int64_t depth, float* packed) {
  for (std::int64_t k = 0; k < depth; ++k) {
    for (std::int64_t c = 0; c < kWidth; ++c) {
      packed[k * kWidth + c] = c < columns ? b[k * p.columns + c] : 0.0f;
    }
  }
}

struct Epilogue {
  bool add_to_c;
  const float* bias;  // null for none
  bool relu;
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
  tile.for_each([&](Floats& sum, int r, int v) {
    float* to = c + r * c_row + v * kLanes;
    const std::int64_t count = std::clamp<std::int64_t>(columns - v * kLanes, 0, kLanes);
    const auto read = [&](const float* from) { return count == kLanes ? load(from) : load_part(from, count); };
    if (epilogue.add_to_c) {
      sum += read(to);
    }
    if (epilogue.bias) {
      sum += read(epilogue.bias + v * kLanes);
    }
    if (epilogue.relu) {
      sum = sum < Floats{} ? Floats{} : sum;
    }
    if (count == kLanes) {
      store(to, sum);
    } else {
      store_part(to, sum, count);
    }
  });
}

}  // namespace

void packed_matmul(
    Backend& backend, const MatmulPlan& plan, const float* a, const float* b, const float* bias, float* c) {
  const MatmulPlan p = plan;
  float* left = backend.scratch((kRows + kWidth) * kDepth);
  float* right = left + kRows * kDepth;
  for (std::int64_t k = 0; k < p.inner; k += kDepth) {
    const std::int64_t depth = std::min(kDepth, p.inner - k);
    const bool last = k + depth == p.inner;
    for (std::int64_t m = 0; m < p.rows; m += kRows) {
      const std::int64_t rows = std::min(kRows, p.rows - m);
      pack_left(p, a + (p.transpose_a ? k * p.rows + m : m * p.inner + k), rows, depth, left);
      for (std::int64_t n = 0; n < p.columns; n += kWidth) {
        const std::int64_t columns = std::min(kWidth, p.columns - n);
        pack_right(p, b + k * p.columns + n, columns, depth, right);
        const Epilogue epilogue{.add_to_c = p.accumulate || k > 0,
                                .bias = p.bias && last ? bias + n : nullptr,
                                .relu = p.relu && last};
        for_each_piece<kTileRows>(rows, [&](std::int64_t first, auto tile_rows) {
          multiply_tile<tile_rows>(left + first * depth, right, depth, epilogue, c + (m + first) * p.columns + n,
                                   p.columns, columns);
        });
      }
    }
  }
}

bool packed_matmul_wins(const MatmulPlan& p) {
  return !p.transpose_b;
}

}  // namespace troupe::cpu
