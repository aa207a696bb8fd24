#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/sum.cuh"
#include "kernels/functors/update.hpp"
#include "kernels/matmul.hpp"
#include "kernels/update.hpp"

namespace troupe::cuda {

// -- column_sum -------------------------------------------------------------------
//
// A block sums 32 columns over some rows, or 128 where four bfloat16 are read at once, eight rows at a time: neighbouring threads
// read neighbouring columns. Where there are many rows, they are cut into chunks whose sums the same
// kernel adds up.

namespace {

constexpr int kSumColumns = kWarp;
constexpr int kSumRows = 8;
constexpr std::int64_t kSumChunkRows = 256;
constexpr std::int64_t kChunksMax = 64;

/// out[chunk, c] = or += the sum over the chunk's rows of x[r, c]. Shapes: x (R, C), out (chunks,
/// C). C is a multiple of `width`.
template <int width, class T>
__global__ void __launch_bounds__(kSumColumns* kSumRows) column_sum_kernel(const T* x,
                                                                           std::int64_t R,
                                                                           std::int64_t C,
                                                                           std::int64_t chunk_rows,
                                                                           float* out,
                                                                           bool accumulate) {
  using Values = Pack<float, width>;
  __shared__ Values sums[kSumRows][kSumColumns];
  const std::int64_t c = (std::int64_t{blockIdx.x} * kSumColumns + threadIdx.x) * width;
  const std::int64_t begin = std::int64_t{blockIdx.y} * chunk_rows;
  const std::int64_t end = begin + chunk_rows < R ? begin + chunk_rows : R;
  Values sum{};
  if (c < C) {
#pragma unroll 4
    for (std::int64_t r = begin + threadIdx.y; r < end; r += kSumRows) {
      const Pack<T, width> values = load<width>(x, r * C + c);
#pragma unroll
      for (int k = 0; k < width; ++k) {
        sum.lane[k] += to_float(values.lane[k]);
      }
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || c >= C) {
    return;
  }
  float* to = out + std::int64_t{blockIdx.y} * C + c;
#pragma unroll
  for (int k = 0; k < width; ++k) {
    for (int row = 1; row < kSumRows; ++row) {
      sum.lane[k] += sums[row][threadIdx.x].lane[k];
    }
    to[k] = accumulate ? to[k] + sum.lane[k] : sum.lane[k];
  }
}

struct Chunks {
  std::int64_t count;
  std::int64_t rows;  // of each; the last may be shorter
};

template <class T>
void launch_column_sum(const Backend::State& state,
                       const T* x,
                       std::int64_t rows,
                       std::int64_t columns,
                       Chunks chunks,
                       float* out,
                       bool accumulate) {
  const bool in_packs =
      sizeof(T) < sizeof(float) && columns % kPackWidth == 0 && packable<kPackWidth>(x);
  const std::int64_t of_block = in_packs ? kPackWidth * kSumColumns : kSumColumns;
  const dim3 grid(static_cast<unsigned>((columns + of_block - 1) / of_block),
                  static_cast<unsigned>(chunks.count));
  const dim3 block(kSumColumns, kSumRows);
  const auto kernel = in_packs ? column_sum_kernel<kPackWidth, T> : column_sum_kernel<1, T>;
  kernel<<<grid, block, 0, state.stream.get()>>>(x, rows, columns, chunks.rows, out, accumulate);
  TROUPE_CUDA_CHECK(cudaGetLastError());
}

/// As many as the workspace holds the sums of, and rows to fill them with.
Chunks chunks_of(std::int64_t rows, std::int64_t columns) {
  const auto room = static_cast<std::int64_t>(kWorkspaceBytes / sizeof(float)) / columns;
  const std::int64_t wanted =
      std::min({kChunksMax, room, (rows + kSumChunkRows - 1) / kSumChunkRows});
  if (wanted <= 1) {
    return {1, rows};
  }
  const std::int64_t each = (rows + wanted - 1) / wanted;
  return {(rows + each - 1) / each, each};
}

template <class T>
void column_sum(const Backend::State& state, const Tensor& x, const Tensor& out, bool accumulate) {
  const std::int64_t rows = x.shape()[0];
  const std::int64_t columns = x.shape()[1];
  if (columns == 0) {
    return;
  }
  const Chunks chunks = chunks_of(rows, columns);
  if (chunks.count == 1) {
    launch_column_sum(state, x.data<T>(), rows, columns, chunks, out.data<float>(), accumulate);
    return;
  }
  float* sums = state.workspace<float>();  // (chunks, C)
  launch_column_sum(state, x.data<T>(), rows, columns, chunks, sums, false);
  launch_column_sum(
      state, sums, chunks.count, columns, {1, chunks.count}, out.data<float>(), accumulate);
}

}  // namespace

void column_sum(Stream& stream, const Tensor& x, const Tensor& out, bool accumulate) {
  const Backend::State& state = activate(stream);
  if (x.type() == DType::bfloat16) {
    column_sum<BFloat16>(state, x, out, accumulate);
  } else {
    column_sum<float>(state, x, out, accumulate);
  }
}

// -- sums in double ---------------------------------------------------------------

namespace {

__global__ void __launch_bounds__(kWarp)
    sum_partials_kernel(const double* partial,
                        const __grid_constant__ BlockCounts counts,
                        double* out) {
  const double* of_part = partial + std::int64_t{blockIdx.x} * kSumBlocksMax;
  const int count = counts.of[blockIdx.x];
  double sum = 0;
  for (int b = static_cast<int>(threadIdx.x); b < count; b += kWarp) {
    sum += of_part[b];
  }
  sum = warp_sum(sum);
  if (threadIdx.x == 0) {
    out[blockIdx.x] = sum;
  }
}

struct Square {
  const float* x;

  __device__ double operator()(std::int64_t i) const {
    const double value = x[i];
    return value * value;
  }
};

struct SquaredDifference {
  const float* a;
  const float* b;

  __device__ double operator()(std::int64_t i) const {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    return difference * difference;
  }
};

struct DivideByNorm {
  const double* sum_of_squares;
  const float* x;
  float* out;  // may be x

  template <int width>
  __device__ void at(std::int64_t i) const {
    const float factor = normalizing_factor(*sum_of_squares);
    Pack<float, width> values = load<width>(x, i);
#pragma unroll
    for (float& lane : values.lane) {
      lane *= factor;
    }
    store<width>(out, i, values);
  }
};

}  // namespace

void sum_partials(const Backend::State& state,
                  const double* partial,
                  const BlockCounts& counts,
                  int parts,
                  double* out) {
  sum_partials_kernel<<<static_cast<unsigned>(parts), kWarp, 0, state.stream.get()>>>(
      partial, counts, out);
  TROUPE_CUDA_CHECK(cudaGetLastError());
}

void sum_of_squares(Stream& stream,
                    const Tensor& x,
                    std::span<const Part> parts,
                    const Tensor& out) {
  sum_terms(activate(stream), Square{x.data<float>()}, parts, out.data<double>());
}

// The norm stays on the device: nobody waits for it.
void normalize(Stream& stream, const Tensor& x, const Tensor& out) {
  const Backend::State& state = activate(stream);
  double* sum = state.workspace<double>() + kPartialsMax;  // behind what sum_terms() uses
  const Part all{0, x.elements()};
  sum_terms(state, Square{x.data<float>()}, {&all, 1}, sum);
  const DivideByNorm pass{sum, x.data<float>(), out.data<float>()};
  for_each_index(state, x.elements(), pack_width(pass.x, pass.out), pass);
}

void squared_distance(Stream& stream, const Tensor& a, const Tensor& b, const Tensor& out) {
  const Part all{0, a.elements()};
  sum_terms(activate(stream),
            SquaredDifference{a.data<float>(), b.data<float>()},
            {&all, 1},
            out.data<double>());
}

}  // namespace troupe::cuda
