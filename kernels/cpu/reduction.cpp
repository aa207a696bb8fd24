#include "kernels/cpu/backend.hpp"
#include "kernels/cpu/vector.hpp"
#include "kernels/functors/update.hpp"
#include "kernels/matmul.hpp"
#include "kernels/tiles.hpp"
#include "kernels/update.hpp"

#include <algorithm>
#include <array>

namespace troupe::cpu::TROUPE_ISA {

namespace {

// -- column_sum ---------------------------------------------------------------------
//
// The order of the additions depends on the shape alone. Rows are summed in float in blocks, and
// the blocks' sums in double, so that the rounding error does not grow with the number of rows.

constexpr std::int64_t kBlockRows = 64;

/// Matrices of many columns: a piece of a row at a time, of four parts of the matrix together. Memory
/// is read faster in four long sequences than in one, and much faster than by neighbouring rows in
/// turn, which the processor's prefetching does not follow.
void column_sum_wide(const float* x, std::int64_t rows, std::int64_t columns, float* out) {
  const std::int64_t piece = tiles().sum_columns;
  constexpr std::int64_t kParts = 4;
  std::array<float, kSumColumnsMax> sum;
  std::array<double, kSumColumnsMax> total;
  const std::int64_t part = rows / kParts;
  for (std::int64_t first = 0; first < columns; first += piece) {
    const auto width = static_cast<std::size_t>(std::min(piece, columns - first));
    std::fill_n(total.begin(), width, 0.0);
    for (std::int64_t begin = 0; begin < part; begin += kBlockRows / kParts) {
      const std::int64_t end = std::min(part, begin + kBlockRows / kParts);
      std::fill_n(sum.begin(), width, 0.0f);
      for (std::int64_t r = begin; r < end; ++r) {
        const float* row = x + r * columns + first;
        const float* second = row + part * columns;
        const float* third = second + part * columns;
        const float* fourth = third + part * columns;
        for (std::size_t i = 0; i < width; ++i) {
          sum[i] += (row[i] + second[i]) + (third[i] + fourth[i]);
        }
      }
      for (std::size_t i = 0; i < width; ++i) {
        total[i] += static_cast<double>(sum[i]);
      }
    }
    for (std::int64_t r = kParts * part; r < rows; ++r) {
      const float* row = x + r * columns + first;
      for (std::size_t i = 0; i < width; ++i) {
        total[i] += static_cast<double>(row[i]);
      }
    }
    for (std::size_t i = 0; i < width; ++i) {
      out[first + static_cast<std::int64_t>(i)] = static_cast<float>(total[i]);
    }
  }
}

/// Matrices of few columns (the gradient by a convolution's bias): several rows side by side make
/// one long row.
void column_sum_narrow(const float* x, std::int64_t rows, std::int64_t columns, float* out) {
  constexpr std::int64_t kLong = 256;
  std::array<float, kLong> sum{};
  std::array<double, kLong> total{};
  const std::int64_t abreast = kLong / columns;
  const std::int64_t length = abreast * columns;
  std::int64_t r = 0;
  while (r + abreast <= rows) {
    sum.fill(0.0f);
    for (std::int64_t k = 0; k < kBlockRows && r + abreast <= rows; ++k, r += abreast) {
      const float* row = x + r * columns;
      for (std::int64_t i = 0; i < length; ++i) {
        sum[static_cast<std::size_t>(i)] += row[i];
      }
    }
    for (std::int64_t i = 0; i < length; ++i) {
      total[static_cast<std::size_t>(i)] += static_cast<double>(sum[static_cast<std::size_t>(i)]);
    }
  }
  for (std::int64_t c = 0; c < columns; ++c) {
    double column = 0;
    for (std::int64_t k = 0; k < abreast; ++k) {
      column += total[static_cast<std::size_t>(k * columns + c)];
    }
    for (std::int64_t rest = r; rest < rows; ++rest) {
      column += static_cast<double>(x[rest * columns + c]);
    }
    out[c] = static_cast<float>(column);
  }
}

// -- sums in double ------------------------------------------------------------------
//
// Element i of a part is added into lane i mod 32, and the lanes are summed in a fixed order: the
// result depends on the part alone, whatever its place in memory.

constexpr std::int64_t kSumLanes = 32;

template <class Term>
double sum_in_lanes(std::int64_t n, Term term) {
  std::array<double, kSumLanes> lanes{};
  constexpr std::int64_t kDoubles = kLanesOf<Doubles>;
  std::array<Doubles, kSumLanes / kDoubles> sum{};
  std::int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    for (std::size_t k = 0; k < sum.size(); ++k) {
      sum[k] += term.several(i + kDoubles * static_cast<std::int64_t>(k));
    }
  }
  std::memcpy(lanes.data(), sum.data(), sizeof lanes);
  for (std::size_t lane = 0; i < n; ++i, ++lane) {
    lanes[lane] += term.one(i);
  }
  for (std::size_t half = kSumLanes / 2; half > 0; half /= 2) {
    for (std::size_t k = 0; k < half; ++k) {
      lanes[k] += lanes[k + half];
    }
  }
  return lanes[0];
}

using HalfFloats = float __attribute__((vector_size(sizeof(Floats) / 2)));

struct Square {
  const float* x;

  double one(std::int64_t i) const { return static_cast<double>(x[i]) * static_cast<double>(x[i]); }

  Doubles several(std::int64_t i) const {
    const auto v = __builtin_convertvector(load<HalfFloats>(x + i), Doubles);
    return v * v;
  }
};

struct SquaredDifference {
  const float* a;
  const float* b;

  double one(std::int64_t i) const {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    return d * d;
  }

  Doubles several(std::int64_t i) const {
    const Doubles d = __builtin_convertvector(load<HalfFloats>(a + i), Doubles) -
                      __builtin_convertvector(load<HalfFloats>(b + i), Doubles);
    return d * d;
  }
};

}  // namespace

void column_sum(Stream& stream, const Tensor& x, const Tensor& out, bool accumulate) {
  const std::int64_t rows = x.shape()[0];
  const std::int64_t columns = x.shape()[1];
  if (columns == 0) {
    return;
  }
  float* to = out.data<float>();
  float* sum = accumulate ? stream.cpu().scratch(columns) : to;
  if (columns < 64) {
    column_sum_narrow(x.data<float>(), rows, columns, sum);
  } else {
    column_sum_wide(x.data<float>(), rows, columns, sum);
  }
  if (accumulate) {
    for (std::int64_t c = 0; c < columns; ++c) {
      to[c] += sum[c];
    }
  }
}

void sum_of_squares(Stream& /*stream*/,
                    const Tensor& x,
                    std::span<const Part> parts,
                    const Tensor& out) {
  double* to = out.data<double>();
  for (const Part& part : parts) {
    *to++ = sum_in_lanes(part.size, Square{x.data<float>() + part.offset});
  }
}

void normalize(Stream& /*stream*/, const Tensor& x, const Tensor& out) {
  const std::int64_t n = x.elements();
  const float* from = x.data<float>();
  const float factor = normalizing_factor(sum_in_lanes(n, Square{from}));
  float* to = out.data<float>();
#pragma GCC ivdep  // out may be x, but never a shifted one
  for (std::int64_t i = 0; i < n; ++i) {
    to[i] = from[i] * factor;
  }
}

void squared_distance(Stream& /*stream*/, const Tensor& a, const Tensor& b, const Tensor& out) {
  *out.data<double>() =
      sum_in_lanes(a.elements(), SquaredDifference{a.data<float>(), b.data<float>()});
}

}  // namespace troupe::cpu::TROUPE_ISA
