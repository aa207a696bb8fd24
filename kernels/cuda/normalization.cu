// Batch, layer and group normalization. All sums are in double, or in floats of four rows that are added in double, and in an order
// that depends on the shape alone.
//
// Sums over columns (batch statistics, the gradients by gamma and beta) are taken by blocks over chunks of rows, and a second kernel
// adds up the chunks' sums and does with them what is to be done for each column. Layer and group normalization are one
// kernel: a team of threads, a warp or a block, has the elements that share a mean.
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/sum.cuh"
#include "kernels/functors/activation.hpp"
#include "kernels/functors/normalization.hpp"
#include "kernels/normalization.hpp"

#include <type_traits>

namespace troupe::cuda {

namespace {

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

/// What the terms of four rows are added up in before that goes to a double: a float where a tensor has eight bits of significance,
/// as a multiprocessor makes doubles of floats at an eighth of its rate.
template <class... Ts>
using NumberOf = std::conditional_t<((sizeof(Ts) < sizeof(float)) || ...), float, double>;

// -- sums over columns --------------------------------------------------------------------

constexpr int kThreads = 256;  // of a block
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
    down = kThreads / across;
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
__global__ void __launch_bounds__(kThreads)
    column_sums_kernel(const __grid_constant__ Term term,
                       std::int64_t R,
                       std::int64_t chunk_rows,
                       const __grid_constant__ ColumnSums to) {
  __shared__ Pair sums[kThreads * width];
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

template <int width, class Term>
ColumnSums sum_chunks(const Backend::State& state, std::int64_t R, std::int64_t C, const Term& term) {
  // Of (2, C) doubles; one takes the floats of Coefficients.
  const std::int64_t room =
      static_cast<std::int64_t>(kWorkspaceBytes / sizeof(double)) / (2 * C) - 1;
  TROUPE_CHECK(room >= 1, "[normalization] ", C, " channels are too many for the workspace");
  const Tiling tiling(C, width);
  const std::int64_t most = std::clamp<std::int64_t>(Term::kBlocks / tiling.blocks, 1, room);
  const std::int64_t wanted = std::clamp<std::int64_t>((R + kChunkRows - 1) / kChunkRows, 1, most);
  const std::int64_t chunk_rows = std::max<std::int64_t>((R + wanted - 1) / wanted, 1);
  const std::int64_t chunks = std::max<std::int64_t>((R + chunk_rows - 1) / chunk_rows, 1);
  const ColumnSums to{state.workspace<double>() + 2 * C, chunks, C};
  const dim3 grid(static_cast<unsigned>(tiling.blocks), static_cast<unsigned>(chunks));
  const dim3 block(tiling.across, tiling.down);
  column_sums_kernel<width><<<grid, block, 0, state.stream.get()>>>(term, R, chunk_rows, to);
  TROUPE_CUDA_CHECK(cudaGetLastError());
  return to;
}

/// f(c, the sum of column c's terms over all rows), by a thread for each column. Behind room for four floats a column, the
/// workspace is used.
template <class Term, class F>
void sum_columns(const Backend::State& state, std::int64_t R, std::int64_t C, const Term& term, const F& f) {
  if (C == 0) {
    return;  // A grid of zero blocks is a launch error.
  }
  const ColumnSums sums = C % kPackWidth == 0 && term.packable()
                              ? sum_chunks<kPackWidth>(state, R, C, term)
                              : sum_chunks<1>(state, R, C, term);
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
__global__ void __launch_bounds__(kThreads)
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
  constexpr std::int64_t kBlocksMax = 1980;  // of an H200's 132 multiprocessors full waves of three or five blocks each
  const Tiling tiling(C, width);
  const std::int64_t down = std::clamp<std::int64_t>(
      (R + tiling.down - 1) / tiling.down, 1, std::max<std::int64_t>(kBlocksMax / tiling.blocks, 1));
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

/// dgamma[c] and dbeta[c] from sums of dy and dy times the normalized x.
struct ParameterGradients {
  float* dgamma;
  float* dbeta;

  __device__ void operator()(std::int64_t c, const Pair& total) const {
    if (dbeta) {
      dbeta[c] = static_cast<float>(total.first);
    }
    dgamma[c] = static_cast<float>(total.second);
  }
};

// -- batch normalization ------------------------------------------------------------------

// x and dx are T, y is Y, dy is D: each float, or bfloat16 as products in bf16 write and read.

template <class T>
struct Moments {
  const T* x;
  std::int64_t C;

  using Number = NumberOf<T>;
  static constexpr std::int64_t kBlocks = kBlocksOfOneTensor;

  bool packable() const { return cuda::packable(x); }

  template <int width>
  __device__ void add(std::int64_t r, std::int64_t c, PairOf<Number> (&sum)[width]) const {
    const Pack<T, width> values = load<width>(x, r * C + c);
#pragma unroll
    for (int k = 0; k < width; ++k) {
      const Number value = to_float(values.lane[k]);
      sum[k] = sum[k] + PairOf<Number>{value, value * value};
    }
  }
};

struct BatchStatistics {
  double n;
  float epsilon;
  float* mean;
  float* inverse_deviation;

  __device__ void operator()(std::int64_t c, const Pair& total) const {
    const NormalizationStatistics statistics(total.first, total.second, n, epsilon);
    mean[c] = statistics.mean;
    inverse_deviation[c] = statistics.inverse_deviation;
  }
};

struct InverseDeviation {
  const float* variance;
  float epsilon;
  float* inverse_deviation;

  __device__ void operator()(std::int64_t c) const {
    const double of_column = variance[c];
    inverse_deviation[c] = static_cast<float>(inverse_of_deviation(of_column, epsilon));
  }
};

/// By column. Shapes: (C) each.
struct Columns {
  const float* gamma;
  const float* beta;
  const float* mean;
  const float* inverse_deviation;
};

template <class Op, class T, class Y>
struct Normalize {
  const T* x;
  Columns of;
  Y* y;

  template <int width>
  struct OfColumns {
    Pack<float, width> mean;
    Pack<float, width> factor;
    Pack<float, width> beta;
  };

  template <int width>
  __device__ OfColumns<width> of_columns(std::int64_t c) const {
    OfColumns<width> columns{.mean = columns_at<width>(of.mean, c),
                             .factor = columns_at<width>(of.gamma, c),
                             .beta = columns_at<width>(of.beta, c)};
    const Pack<float, width> inverse = columns_at<width>(of.inverse_deviation, c);
#pragma unroll
    for (int k = 0; k < width; ++k) {
      columns.factor.lane[k] *= inverse.lane[k];
    }
    return columns;
  }

  template <int width>
  __device__ Pack<T, width> read(std::int64_t i) const {
    return load<width>(x, i);
  }

  template <int width>
  __device__ void write(std::int64_t i,
                        const Pack<T, width>& values,
                        const OfColumns<width>& columns) const {
    Pack<Y, width> normalized;
#pragma unroll
    for (int k = 0; k < width; ++k) {
      normalized.lane[k] = from_float<Y>(
          Op{}.forward((to_float(values.lane[k]) - columns.mean.lane[k]) * columns.factor.lane[k] +
                       columns.beta.lane[k]));
    }
    store<width>(y, i, normalized);
  }
};

void normalize(const Backend::State& state,
               ActivationKind activation,
               const Tensor& x,
               const Columns& of,
               const Tensor& y) {
  const std::int64_t C = x.shape().back();
  const std::int64_t R = C == 0 ? 0 : x.elements() / C;
  with_type_of(x, [&]<class T>() {
    with_type_of(y, [&]<class Y>() {
      const T* from = x.data<T>();
      Y* to = y.data<Y>();
      const auto width = pack_width(from, to);
      if (activation == ActivationKind::relu) {
        for_each_row(state, R, C, width, Normalize<Relu, T, Y>{from, of, to});
      } else {
        for_each_row(state, R, C, width, Normalize<Identity, T, Y>{from, of, to});
      }
    });
  });
}

struct TakeIn {
  RunningStatistics running;
  const float* mean;
  const float* inverse_deviation;
  const float* running_mean;
  const float* running_variance;
  float* next_mean;
  float* next_variance;

  __device__ void operator()(std::int64_t c) const {
    float mean_now = running_mean[c];
    float variance_now = running_variance[c];
    running.take_in(mean[c], inverse_deviation[c], mean_now, variance_now);
    next_mean[c] = mean_now;
    next_variance[c] = variance_now;
  }
};

/// g and g (x - mean), with g the gradient that came through the activation.
template <class T, class Y, class D>
struct BatchGradientTerms {
  const T* x;
  const Y* y;  // null: no activation
  const D* dy;
  const float* mean;
  std::int64_t C;

  using Number = NumberOf<T, D>;
  static constexpr std::int64_t kBlocks = kBlocksOfSeveral;

  bool packable() const { return cuda::packable(x, y, dy); }

  template <int width>
  __device__ void add(std::int64_t r, std::int64_t c, PairOf<Number> (&sum)[width]) const {
    const std::int64_t i = r * C + c;
    const Pack<T, width> inputs = load<width>(x, i);
    const Pack<D, width> gradients = load<width>(dy, i);
    const Pack<Y, width> outputs = y ? load<width>(y, i) : Pack<Y, width>{};
#pragma unroll
    for (int k = 0; k < width; ++k) {
      const float of_y = to_float(gradients.lane[k]);
      const Number g = y ? Relu{}.backward(to_float(outputs.lane[k]), of_y) : of_y;
      const Number centred = to_float(inputs.lane[k]) - mean[c + k];
      sum[k] = sum[k] + PairOf<Number>{g, g * centred};
    }
  }
};

/// What the elements of a column need. Shapes: (C) each, in the workspace.
struct Coefficients {
  float* factor;
  float* slope;
  float* offset;
};

struct BatchGradients {
  double n;
  const float* gamma;
  const float* inverse_deviation;
  float* dgamma;
  float* dbeta;
  Coefficients to;

  __device__ void operator()(std::int64_t c, const Pair& total) const {
    const double weight = gamma[c];
    const NormalizationGradient gradient(
        gamma[c], inverse_deviation[c], weight * total.first, weight * total.second, n);
    to.factor[c] = gradient.factor;
    to.slope[c] = gradient.slope;
    to.offset[c] = gradient.offset;
    dgamma[c] = static_cast<float>(total.second * static_cast<double>(inverse_deviation[c]));
    dbeta[c] = static_cast<float>(total.first);
  }
};

template <class T, class Y, class D>
struct BatchInputGradient {
  const T* x;
  const Y* y;  // null: no activation
  const D* dy;
  const float* mean;
  Coefficients of;
  T* dx;  // may be dy

  template <int width>
  struct OfColumns {
    Pack<float, width> mean;
    Pack<float, width> factor;
    Pack<float, width> slope;
    Pack<float, width> offset;
  };

  template <int width>
  struct Read {
    Pack<T, width> x;
    Pack<D, width> dy;
    Pack<Y, width> y;
  };

  template <int width>
  __device__ OfColumns<width> of_columns(std::int64_t c) const {
    return {.mean = columns_at<width>(mean, c),
            .factor = columns_at<width>(of.factor, c),
            .slope = columns_at<width>(of.slope, c),
            .offset = columns_at<width>(of.offset, c)};
  }

  template <int width>
  __device__ Read<width> read(std::int64_t i) const {
    return {.x = load<width>(x, i),
            .dy = load<width>(dy, i),
            .y = y ? load<width>(y, i) : Pack<Y, width>{}};
  }

  template <int width>
  __device__ void write(std::int64_t i,
                        const Read<width>& read,
                        const OfColumns<width>& columns) const {
    Pack<T, width> result;
#pragma unroll
    for (int k = 0; k < width; ++k) {
      const float of_y = to_float(read.dy.lane[k]);
      const float gradient = y ? Relu{}.backward(to_float(read.y.lane[k]), of_y) : of_y;
      result.lane[k] = from_float<T>(
          gradient * columns.factor.lane[k] +
          ((to_float(read.x.lane[k]) - columns.mean.lane[k]) * columns.slope.lane[k] +
           columns.offset.lane[k]));
    }
    store<width>(dx, i, result);
  }
};

// -- layer and group normalization ----------------------------------------------------------

/// x (B, S, C), of which image b's channels [g width, (g + 1) width) share mean and deviation number
/// b groups + g. Layer normalization: S = 1, one group.
struct Groups {
  std::int64_t B;
  std::int64_t S;
  std::int64_t C;
  std::int64_t groups;
  std::int64_t width;

  __host__ __device__ std::int64_t count() const { return B * groups; }

  __host__ __device__ std::int64_t elements() const { return S * width; }

  /// Of row r of x as (B S, C).
  __device__ std::int64_t group_of(std::int64_t r, std::int64_t c) const {
    return groups == 1 && S == 1 ? r : Place(r, S).row * groups + Place(c, width).row;
  }
};

/// Goes over the packs of `width` of a group's elements that belong to one thread of a team: a group's width is a multiple of a
/// pack's.
template <int width>
class Cursor {
 public:
  __device__ Cursor(const Groups& g, std::int64_t group, int thread, int team)
      : columns_(static_cast<int>(g.width)),
        rows_down_(team * width / columns_),
        columns_across_(team * width % columns_),
        row_(thread * width / columns_),
        column_(thread * width % columns_) {
    const Place of_image(group, g.groups);
    channel_ = of_image.column * g.width;
    first_ = of_image.row * g.S * g.C + channel_;
  }

  __device__ bool inside(const Groups& g) const { return row_ < g.S; }

  __device__ void advance() {
    row_ += rows_down_;
    column_ += columns_across_;
    if (column_ >= columns_) {
      column_ -= columns_;
      ++row_;
    }
  }

  /// Into x.
  __device__ std::int64_t index(const Groups& g) const { return first_ + row_ * g.C + column_; }

  __device__ std::int64_t channel() const { return channel_ + column_; }

 private:
  int columns_;
  int rows_down_;
  int columns_across_;
  std::int64_t row_;
  int column_;
  std::int64_t channel_;  // the group's first
  std::int64_t first_;    // and its first element
};

/// Every thread of the team gets the sum. At most one call a kernel.
template <int team>
__device__ Pair team_sum(Pair value) {
  if constexpr (team == kWarp) {
    return {__shfl_sync(0xffffffffu, warp_sum(value.first), 0),
            __shfl_sync(0xffffffffu, warp_sum(value.second), 0)};
  } else {
    static_assert(team == kSumBlock);
    __shared__ Pair total;
    const double first = block_sum(value.first);
    const double second = block_sum(value.second);
    if (threadIdx.x == 0) {
      total = {first, second};
    }
    __syncthreads();
    return total;
  }
}

template <class T, class Y>
struct GroupForward {
  Groups shape;
  const T* x;
  const float* gamma;
  const float* beta;
  float epsilon;
  Y* y;
  float* mean;  // null, as beta is: RMS
  float* inverse_deviation;

  template <int team, int width>
  __device__ void run(std::int64_t group, int thread) const {
    Pair sum{0, 0};
#pragma unroll 4
    for (Cursor<width> e(shape, group, thread, team); e.inside(shape); e.advance()) {
      const Pack<T, width> values = load<width>(x, e.index(shape));
#pragma unroll
      for (int k = 0; k < width; ++k) {
        const double value = to_float(values.lane[k]);
        sum = sum + Pair{value, value * value};
      }
    }
    sum = team_sum<team>(sum);
    const NormalizationStatistics statistics(
        mean ? sum.first : 0.0, sum.second, static_cast<double>(shape.elements()), epsilon);
    if (thread == 0) {
      if (mean) {
        mean[group] = statistics.mean;
      }
      inverse_deviation[group] = statistics.inverse_deviation;
    }
    for (Cursor<width> e(shape, group, thread, team); e.inside(shape); e.advance()) {
      const std::int64_t i = e.index(shape);
      const Pack<T, width> values = load<width>(x, i);
      const Pack<float, width> factor = columns_at<width>(gamma, e.channel());
      const Pack<float, width> offset =
          beta ? columns_at<width>(beta, e.channel()) : Pack<float, width>{};
      Pack<Y, width> normalized;
#pragma unroll
      for (int k = 0; k < width; ++k) {
        normalized.lane[k] = from_float<Y>((to_float(values.lane[k]) - statistics.mean) *
                                               (factor.lane[k] * statistics.inverse_deviation) +
                                           offset.lane[k]);
      }
      store<width>(y, i, normalized);
    }
  }
};

template <class T, class D>
struct GroupInputGradient {
  Groups shape;
  const T* x;
  const float* gamma;
  const float* mean;
  const float* inverse_deviation;
  const D* dy;
  T* dx;  // may be dy

  template <int team, int width>
  __device__ void run(std::int64_t group, int thread) const {
    const float center = mean ? mean[group] : 0.0f;
    const float inverse = inverse_deviation[group];
    Pair sum{0, 0};
#pragma unroll 4
    for (Cursor<width> e(shape, group, thread, team); e.inside(shape); e.advance()) {
      const std::int64_t i = e.index(shape);
      const Pack<T, width> values = load<width>(x, i);
      const Pack<D, width> gradients = load<width>(dy, i);
      const Pack<float, width> weight = columns_at<width>(gamma, e.channel());
#pragma unroll
      for (int k = 0; k < width; ++k) {
        const double weighted = static_cast<double>(to_float(gradients.lane[k])) *
                                static_cast<double>(weight.lane[k]);
        sum = sum +
              Pair{weighted, weighted * static_cast<double>(to_float(values.lane[k]) - center)};
      }
    }
    sum = team_sum<team>(sum);
    const NormalizationGradient of_group(
        1.0f, inverse, mean ? sum.first : 0.0, sum.second, static_cast<double>(shape.elements()));
    for (Cursor<width> e(shape, group, thread, team); e.inside(shape); e.advance()) {
      const std::int64_t i = e.index(shape);
      const Pack<T, width> values = load<width>(x, i);
      const Pack<D, width> gradients = load<width>(dy, i);
      const Pack<float, width> weight = columns_at<width>(gamma, e.channel());
      Pack<T, width> result;
#pragma unroll
      for (int k = 0; k < width; ++k) {
        result.lane[k] = from_float<T>(
            to_float(gradients.lane[k]) * (weight.lane[k] * inverse) +
            ((to_float(values.lane[k]) - center) * of_group.slope + of_group.offset));
      }
      store<width>(dx, i, result);
    }
  }
};

template <int team, int width, class F>
__global__ void __launch_bounds__(kSumBlock) for_each_group_kernel(const __grid_constant__ F f) {
  constexpr int kTeams = kSumBlock / team;
  const int thread = static_cast<int>(threadIdx.x) % team;
  const std::int64_t group = std::int64_t{blockIdx.x} * kTeams + threadIdx.x / team;
  if (group < f.shape.count()) {  // for all of a team or none of it
    f.template run<team, width>(group, thread);
  }
}

template <int team, int width, class F>
void launch_groups(const Backend::State& state, const F& f) {
  constexpr std::int64_t kTeams = kSumBlock / team;
  const std::int64_t blocks = (f.shape.count() + kTeams - 1) / kTeams;
  for_each_group_kernel<team, width>
      <<<static_cast<unsigned>(blocks), kSumBlock, 0, state.stream.get()>>>(f);
  TROUPE_CUDA_CHECK(cudaGetLastError());
}

/// f.run<team, width>(group, thread) by all threads of a team for each group.
template <int widest, class F>
void for_each_group(const Backend::State& state, PackWidth<widest> width, const F& f) {
  constexpr std::int64_t kWarpElements = 2048;
  if (f.shape.count() == 0) {
    return;
  }
  with_width(width.dividing(f.shape.width), [&]<int w>() {
    if (f.shape.elements() <= kWarpElements) {
      launch_groups<kWarp, w>(state, f);
    } else {
      launch_groups<kSumBlock, w>(state, f);
    }
  });
}

/// dy, and dy times the normalized x.
template <class T, class D>
struct GroupParameterTerms {
  Groups shape;
  const T* x;
  const float* mean;
  const float* inverse_deviation;
  const D* dy;

  using Number = NumberOf<T, D>;
  static constexpr std::int64_t kBlocks = kBlocksOfSeveral;

  /// A pack is of one group.
  bool packable() const { return shape.width % kPackWidth == 0 && cuda::packable(x, dy); }

  template <int width>
  __device__ void add(std::int64_t r, std::int64_t c, PairOf<Number> (&sum)[width]) const {
    const std::int64_t i = r * shape.C + c;
    const Pack<T, width> inputs = load<width>(x, i);
    const Pack<D, width> gradients = load<width>(dy, i);
    const std::int64_t group = shape.group_of(r, c);
    const float center = mean ? mean[group] : 0.0f;
    const Number inverse = inverse_deviation[group];
#pragma unroll
    for (int k = 0; k < width; ++k) {
      const Number gradient = to_float(gradients.lane[k]);
      const Number centred = to_float(inputs.lane[k]) - center;
      sum[k] = sum[k] + PairOf<Number>{gradient, gradient * centred * inverse};
    }
  }
};

/// Null where it is empty.
float* data_of(const Tensor& x) {
  return x ? x.data<float>() : nullptr;
}

void groups_forward(Stream& stream, const Groups& shape, const NormalizationForward& a) {
  const Backend::State& state = activate(stream);
  with_type_of(a.x, [&]<class T>() {
    with_type_of(a.y, [&]<class Y>() {
      for_each_group(state,
                     pack_width(a.x.data<T>(), a.y.data<Y>()),
                     GroupForward<T, Y>{.shape = shape,
                                        .x = a.x.data<T>(),
                                        .gamma = a.gamma.data<float>(),
                                        .beta = data_of(a.beta),
                                        .epsilon = a.epsilon,
                                        .y = a.y.data<Y>(),
                                        .mean = data_of(a.mean),
                                        .inverse_deviation = a.inverse_deviation.data<float>()});
    });
  });
}

template <class T, class D>
void groups_backward(const Backend::State& state,
                     const Groups& shape,
                     const NormalizationBackward& a) {
  // First, because dx may be dy.
  sum_columns(state,
              shape.B * shape.S,
              shape.C,
              GroupParameterTerms<T, D>{.shape = shape,
                                        .x = a.x.data<T>(),
                                        .mean = data_of(a.mean),
                                        .inverse_deviation = a.inverse_deviation.data<float>(),
                                        .dy = a.dy.data<D>()},
              ParameterGradients{a.dgamma.data<float>(), data_of(a.dbeta)});
  const GroupInputGradient<T, D> pass{.shape = shape,
                                      .x = a.x.data<T>(),
                                      .gamma = a.gamma.data<float>(),
                                      .mean = data_of(a.mean),
                                      .inverse_deviation = a.inverse_deviation.data<float>(),
                                      .dy = a.dy.data<D>(),
                                      .dx = a.dx.data<T>()};
  for_each_group(state, pack_width(pass.x, pass.dy, pass.dx), pass);
}

void groups_backward(Stream& stream, const Groups& shape, const NormalizationBackward& a) {
  const Backend::State& state = activate(stream);
  with_type_of(a.x, [&]<class T>() {
    with_type_of(a.dy, [&]<class D>() { groups_backward<T, D>(state, shape, a); });
  });
}

Groups rows_as_groups(const Tensor& x) {
  const std::int64_t C = x.shape()[1];
  return {.B = x.shape()[0], .S = 1, .C = C, .groups = 1, .width = C};
}

Groups groups_of(const Tensor& x, std::int64_t groups) {
  const Shape& s = x.shape();
  return {.B = s[0], .S = s[1], .C = s[2], .groups = groups, .width = s[2] / groups};
}

}  // namespace

// -- the operations -----------------------------------------------------------------------

namespace {

template <class T, class Y, class D>
void batch_norm_backward(const Backend::State& state,
                         const Tensor& y,
                         const NormalizationBackward& a) {
  const std::int64_t R = a.x.shape()[0];
  const std::int64_t C = a.x.shape()[1];
  const Y* output = y ? y.data<Y>() : nullptr;
  float* values = state.workspace<float>();  // (3, C), before the sums
  const Coefficients coefficients{values, values + C, values + 2 * C};
  sum_columns(state,
              R,
              C,
              BatchGradientTerms<T, Y, D>{.x = a.x.data<T>(),
                                          .y = output,
                                          .dy = a.dy.data<D>(),
                                          .mean = a.mean.data<float>(),
                                          .C = C},
              BatchGradients{.n = static_cast<double>(R),
                             .gamma = a.gamma.data<float>(),
                             .inverse_deviation = a.inverse_deviation.data<float>(),
                             .dgamma = a.dgamma.data<float>(),
                             .dbeta = a.dbeta.data<float>(),
                             .to = coefficients});
  const BatchInputGradient<T, Y, D> pass{.x = a.x.data<T>(),
                                         .y = output,
                                         .dy = a.dy.data<D>(),
                                         .mean = a.mean.data<float>(),
                                         .of = coefficients,
                                         .dx = a.dx.data<T>()};
  for_each_row(state, R, C, pack_width(pass.x, pass.y, pass.dy, pass.dx), pass);
}

template <class Arguments>
Columns columns_of(const Arguments& a, const Tensor& mean, const float* inverse_deviation) {
  return {.gamma = a.gamma.template data<float>(),
          .beta = a.beta.template data<float>(),
          .mean = mean.data<float>(),
          .inverse_deviation = inverse_deviation};
}

}  // namespace

void batch_norm_forward(Stream& stream, ActivationKind activation, const NormalizationForward& a) {
  const Backend::State& state = activate(stream);
  const std::int64_t R = a.x.shape()[0];
  const std::int64_t C = a.x.shape()[1];
  with_type_of(a.x, [&]<class T>() {
    sum_columns(state,
                R,
                C,
                Moments<T>{a.x.data<T>(), C},
                BatchStatistics{.n = static_cast<double>(R),
                                .epsilon = a.epsilon,
                                .mean = a.mean.data<float>(),
                                .inverse_deviation = a.inverse_deviation.data<float>()});
  });
  normalize(state, activation, a.x, columns_of(a, a.mean, a.inverse_deviation.data<float>()), a.y);
}

void batch_norm_infer(Stream& stream, const BatchNormInference& a) {
  const Backend::State& state = activate(stream);
  float* inverse_deviation = state.workspace<float>();  // (C)
  for_each_column(state,
                  a.x.shape()[1],
                  InverseDeviation{a.running_variance.data<float>(), a.epsilon, inverse_deviation});
  normalize(state, a.activation, a.x, columns_of(a, a.running_mean, inverse_deviation), a.y);
}

void batch_norm_running(Stream& stream, const BatchNormRunning& a) {
  for_each_column(activate(stream),
                  a.mean.elements(),
                  TakeIn{.running = RunningStatistics(a.rows, a.epsilon, a.momentum),
                         .mean = a.mean.data<float>(),
                         .inverse_deviation = a.inverse_deviation.data<float>(),
                         .running_mean = a.running_mean.data<float>(),
                         .running_variance = a.running_variance.data<float>(),
                         .next_mean = a.next_mean.data<float>(),
                         .next_variance = a.next_variance.data<float>()});
}

void batch_norm_backward(Stream& stream, const Tensor& y, const NormalizationBackward& a) {
  const Backend::State& state = activate(stream);
  with_type_of(a.x, [&]<class T>() {
    with_type_of(y ? y : a.x, [&]<class Y>() {
      with_type_of(a.dy, [&]<class D>() { batch_norm_backward<T, Y, D>(state, y, a); });
    });
  });
}

void layer_norm_forward(Stream& stream, const NormalizationForward& a) {
  groups_forward(stream, rows_as_groups(a.x), a);
}

void layer_norm_backward(Stream& stream, const NormalizationBackward& a) {
  groups_backward(stream, rows_as_groups(a.x), a);
}

void group_norm_forward(Stream& stream, std::int64_t groups, const NormalizationForward& a) {
  groups_forward(stream, groups_of(a.x, groups), a);
}

void group_norm_backward(Stream& stream, std::int64_t groups, const NormalizationBackward& a) {
  groups_backward(stream, groups_of(a.x, groups), a);
}

}  // namespace troupe::cuda
