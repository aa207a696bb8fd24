// Passes over the columns of a matrix (R, C): sums of each column, and what is done with every element by numbers of its column.
//
// All sums are in double, or in floats of four rows that are added in double, and in an order that depends on shape and types alone.
// They are taken by blocks over chunks of rows, and a second kernel adds up the chunks' sums and does with them what is to be
// done for each column.
#pragma once

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/sum.cuh"

#include <algorithm>
#include <cstdint>

namespace troupe::cuda {

template <class Number>
struct PairOf {
  Number first;
  Number second;
};

using Pair = PairOf<double>;

template <class Number>
__device__ PairOf<Number> operator+(const PairOf<Number>& a, const PairOf<Number>& b) {
  return {a.first + b.first, a.second + b.second};
}

constexpr int kColumnThreads = 256;      // of a block
constexpr std::int64_t kChunkRows = 64;  // at least
// As many blocks of sums as an H200's 132 multiprocessors hold at once, by the registers: with more or fewer some would wait for
// the last ones. Not asked of the device, so that the order of additions depends on the shape alone.
constexpr std::int64_t kBlocksOfOneTensor = 792;
constexpr std::int64_t kBlocksOfSeveral = 528;

/// Threads of a block by packs of columns, so that few columns leave none idle; and the blocks that all columns take.
struct Tiling {
  unsigned across;
  unsigned down;
  std::int64_t blocks;

  Tiling(std::int64_t C, int width) {
    const std::int64_t packs = (C + width - 1) / width;
    across = kWarp;
    while (across > 1 && across / 2 >= packs) {
      across /= 2;
    }
    down = kColumnThreads / across;
    blocks = (packs + across - 1) / across;
  }
};

/// Partial sums of all columns, and how many there are of each. Shape: sums (chunks, 2, C).
struct ColumnSums {
  double* sums;
  std::int64_t chunks;
  std::int64_t C;

  __device__ Pair operator()(std::int64_t chunk, std::int64_t c) const {
    return {sums[2 * chunk * C + c], sums[(2 * chunk + 1) * C + c]};
  }
};

/// to.sums[chunk, :, c] = the sums over the chunk's rows of the terms of (r, c). A thread has `width` neighbouring columns, C a
/// multiple of it: term.add<width>(r, c, sums).
template <int width, class Term>
__global__ void __launch_bounds__(kColumnThreads)
    column_sums_kernel(const __grid_constant__ Term term,
                       std::int64_t R,
                       std::int64_t chunk_rows,
                       const __grid_constant__ ColumnSums to) {
  __shared__ Pair sums[kColumnThreads * width];
  const std::int64_t c = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * width;
  const std::int64_t begin = std::int64_t{blockIdx.y} * chunk_rows;
  const std::int64_t end = begin + chunk_rows < R ? begin + chunk_rows : R;
  Pair sum[width] = {};
  const auto add_rows = [&]<int count>(std::int64_t r) {
    PairOf<typename Term::Number> block[width] = {};
#pragma unroll
    for (int row = 0; row < count; ++row) {
      term.template add<width>(r + row * blockDim.y, c, block);
    }
#pragma unroll
    for (int k = 0; k < width; ++k) {
      sum[k] = sum[k] + Pair{block[k].first, block[k].second};
    }
  };
  if (c < to.C) {
    constexpr int kBlockRows = 4;
    std::int64_t r = begin + threadIdx.y;
    for (; r + (kBlockRows - 1) * blockDim.y < end; r += kBlockRows * blockDim.y) {
      add_rows.template operator()<kBlockRows>(r);
    }
    for (; r < end; r += blockDim.y) {
      add_rows.template operator()<1>(r);
    }
  }
  Pair* const of_column = sums + threadIdx.x * width;
  const unsigned row = blockDim.x * width;
#pragma unroll
  for (int k = 0; k < width; ++k) {
    of_column[threadIdx.y * row + k] = sum[k];
  }
  __syncthreads();
  if (threadIdx.y != 0 || c >= to.C) {
    return;
  }
  double* const chunk = to.sums + 2 * std::int64_t{blockIdx.y} * to.C;
#pragma unroll
  for (int k = 0; k < width; ++k) {
    for (unsigned y = 1; y < blockDim.y; ++y) {
      sum[k] = sum[k] + of_column[y * row + k];
    }
    chunk[c + k] = sum[k].first;
    chunk[to.C + c + k] = sum[k].second;
  }
}

constexpr int kTotalColumns = 8;
constexpr int kTotalRows = 64;

/// f(c, the sum of column c over all chunks).
template <class F>
__global__ void __launch_bounds__(kTotalColumns* kTotalRows)
    column_totals_kernel(const __grid_constant__ ColumnSums of, const __grid_constant__ F f) {
  __shared__ Pair sums[kTotalRows][kTotalColumns];
  const std::int64_t c = std::int64_t{blockIdx.x} * kTotalColumns + threadIdx.x;
  Pair sum{0, 0};
  if (c < of.C) {
#pragma unroll 4
    for (std::int64_t chunk = threadIdx.y; chunk < of.chunks; chunk += kTotalRows) {
      sum = sum + of(chunk, c);
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  for (unsigned rows = kTotalRows / 2; rows > 0; rows /= 2) {
    __syncthreads();
    if (threadIdx.y < rows) {
      sum = sum + sums[threadIdx.y + rows][threadIdx.x];
      sums[threadIdx.y][threadIdx.x] = sum;
    }
  }
  if (threadIdx.y == 0 && c < of.C) {
    f(c, sum);
  }
}

/// f(c, the sum of column c's terms over all rows), by a thread for each column. Behind room for four floats a column, the
/// workspace is used.
template <class Term, class F>
void sum_columns(
    const Backend::State& state, std::int64_t R, std::int64_t C, const Term& term, const F& f) {
  if (C == 0) {
    return;  // A grid of zero blocks is a launch error.
  }
  // Of (2, C) doubles; one takes the floats of Coefficients.
  const std::int64_t room =
      static_cast<std::int64_t>(kWorkspaceBytes / sizeof(double)) / (2 * C) - 1;
  TROUPE_CHECK(room >= 1, "[normalization] ", C, " channels are too many for the workspace");
  // Whether packs can be read says how many columns a thread has, and not who has which rows.
  const Tiling tiling(C, C % kPackWidth == 0 ? kPackWidth : 1);
  const std::int64_t most = std::clamp<std::int64_t>(Term::kBlocks / tiling.blocks, 1, room);
  const std::int64_t wanted = std::clamp<std::int64_t>((R + kChunkRows - 1) / kChunkRows, 1, most);
  const std::int64_t chunk_rows = std::max<std::int64_t>((R + wanted - 1) / wanted, 1);
  const std::int64_t chunks = std::max<std::int64_t>((R + chunk_rows - 1) / chunk_rows, 1);
  const ColumnSums sums{state.workspace<double>() + 2 * C, chunks, C};
  const auto launch = [&]<int width>() {
    const std::int64_t of_block = tiling.across * width;
    const dim3 grid(static_cast<unsigned>((C + of_block - 1) / of_block),
                    static_cast<unsigned>(chunks));
    const dim3 block(tiling.across, tiling.down);
    column_sums_kernel<width><<<grid, block, 0, state.stream.get()>>>(term, R, chunk_rows, sums);
    TROUPE_CUDA_CHECK(cudaGetLastError());
  };
  if (C % kPackWidth == 0 && term.packable()) {
    launch.template operator()<kPackWidth>();
  } else {
    launch.template operator()<1>();
  }
  const auto blocks = static_cast<unsigned>((C + kTotalColumns - 1) / kTotalColumns);
  column_totals_kernel<<<blocks, dim3(kTotalColumns, kTotalRows), 0, state.stream.get()>>>(sums, f);
  TROUPE_CUDA_CHECK(cudaGetLastError());
}

constexpr int kColumnBlock = 64;  // threads; small, so that few columns still make several blocks

template <class F>
__global__ void __launch_bounds__(kColumnBlock)
    for_each_column_kernel(std::int64_t C, const __grid_constant__ F f) {
  const std::int64_t c = std::int64_t{blockIdx.x} * kColumnBlock + threadIdx.x;
  if (c < C) {
    f(c);
  }
}

/// f(c) by a thread for each column.
template <class F>
void for_each_column(const Backend::State& state, std::int64_t C, const F& f) {
  if (C == 0) {
    return;  // A grid of zero blocks is a launch error.
  }
  const auto blocks = static_cast<unsigned>((C + kColumnBlock - 1) / kColumnBlock);
  for_each_column_kernel<<<blocks, kColumnBlock, 0, state.stream.get()>>>(C, f);
  TROUPE_CUDA_CHECK(cudaGetLastError());
}

/// Of f for `width` neighbouring columns and every row: what it needs of the columns is read once, and two rows before one is
/// written.
template <int width, class F>
__global__ void __launch_bounds__(kColumnThreads)
    for_each_row_kernel(std::int64_t R, std::int64_t C, const __grid_constant__ F f) {
  const std::int64_t c = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * width;
  if (c >= C) {
    return;
  }
  const auto of_columns = f.template of_columns<width>(c);
  const std::int64_t step = std::int64_t{gridDim.y} * blockDim.y;
  std::int64_t r = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y;
  for (; r + step < R; r += 2 * step) {
    const std::int64_t i = r * C + c;
    const std::int64_t j = i + step * C;
    const auto first = f.template read<width>(i);
    const auto second = f.template read<width>(j);
    f.template write<width>(i, first, of_columns);
    f.template write<width>(j, second, of_columns);
  }
  if (r < R) {
    const std::int64_t i = r * C + c;
    f.template write<width>(i, f.template read<width>(i), of_columns);
  }
}

template <int width, class F>
void launch_for_each_row(const Backend::State& state, std::int64_t R, std::int64_t C, const F& f) {
  // Of an H200's 132 multiprocessors full waves of three or five blocks each.
  constexpr std::int64_t kBlocksMax = 1980;
  const Tiling tiling(C, width);
  const std::int64_t down =
      std::clamp<std::int64_t>((R + tiling.down - 1) / tiling.down,
                               1,
                               std::max<std::int64_t>(kBlocksMax / tiling.blocks, 1));
  const dim3 grid(static_cast<unsigned>(tiling.blocks), static_cast<unsigned>(down));
  const dim3 block(tiling.across, tiling.down);
  for_each_row_kernel<width><<<grid, block, 0, state.stream.get()>>>(R, C, f);
  TROUPE_CUDA_CHECK(cudaGetLastError());
}

/// f.write(i, f.read(i), f.of_columns(c)) for all elements i = r C + c. `width` as pack_width() says.
template <int widest, class F>
void for_each_row(const Backend::State& state,
                  std::int64_t R,
                  std::int64_t C,
                  PackWidth<widest> width,
                  const F& f) {
  if (R == 0 || C == 0) {
    return;  // A grid of zero blocks is a launch error.
  }
  with_width(width.dividing(C), [&]<int w>() { launch_for_each_row<w>(state, R, C, f); });
}

/// x[c, ..., c + width)
template <int width>
__device__ Pack<float, width> columns_at(const float* x, std::int64_t c) {
  if (reinterpret_cast<std::uintptr_t>(x) % alignof(Pack<float, width>) == 0) {
    return load<width>(x, c);
  }
  Pack<float, width> values;
#pragma unroll
  for (int k = 0; k < width; ++k) {
    values.lane[k] = x[c + k];
  }
  return values;
}

}  // namespace troupe::cuda
