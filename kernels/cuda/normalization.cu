// Batch, layer and group normalization. All sums are in double and in an order that depends on the
// shape alone.
//
// Sums over columns (batch statistics, the gradients by gamma and beta) are taken by blocks of 32
// columns over chunks of rows. The chunks' sums are added up by whatever reads them, one thread a
// column, and where they are many by the same kernel before. Layer and group normalization are one
// kernel: a team of threads, a warp or a block, has the elements that share a mean.
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/sum.cuh"
#include "kernels/functors/activation.hpp"
#include "kernels/functors/normalization.hpp"
#include "kernels/normalization.hpp"

namespace troupe::cuda {

namespace {

struct Pair {
  double first;
  double second;
};

__device__ Pair operator+(const Pair& a, const Pair& b) {
  return {a.first + b.first, a.second + b.second};
}

// -- sums over columns --------------------------------------------------------------------

constexpr int kColumns = kWarp;
constexpr int kRows = 8;
constexpr std::int64_t kChunkRows = 64;  // at least
// As many as an H200's 132 multiprocessors hold at once, six to eight each by the registers: with
// four loads a thread, as few blocks as 256 would have too few bytes under way for its memory. With two columns a thread there
// are half as many, with twice the bytes of each load.
constexpr std::int64_t kBlocksWanted = 1024;
constexpr std::int64_t kChunksOfAThread = 16;

/// Partial sums of all columns, and how many there are of each. Shape: sums (chunks, 2, C).
struct ColumnSums {
  double* sums;
  std::int64_t chunks;
  std::int64_t C;

  __device__ Pair operator()(std::int64_t chunk, std::int64_t c) const {
    return {sums[2 * chunk * C + c], sums[(2 * chunk + 1) * C + c]};
  }

  template <int>
  __device__ void add(std::int64_t chunk, std::int64_t c, Pair (&sum)[1]) const {
    sum[0] = sum[0] + (*this)(chunk, c);
  }

  __device__ Pair total(std::int64_t c) const {
    Pair sum{0, 0};
#pragma unroll 4
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      sum = sum + (*this)(chunk, c);
    }
    return sum;
  }
};

/// to.sums[chunk, :, c] = the sums over the chunk's rows of the terms of (r, c). A thread has `width` neighbouring columns, C a
/// multiple of it: term.add<width>(r, c, sums).
template <int width, class Term>
__global__ void __launch_bounds__(kColumns* kRows)
    column_sums_kernel(const __grid_constant__ Term term,
                       std::int64_t R,
                       std::int64_t chunk_rows,
                       const __grid_constant__ ColumnSums to) {
  __shared__ Pair sums[kRows][kColumns][width];
  const std::int64_t c = (std::int64_t{blockIdx.x} * kColumns + threadIdx.x) * width;
  const std::int64_t begin = std::int64_t{blockIdx.y} * chunk_rows;
  const std::int64_t end = begin + chunk_rows < R ? begin + chunk_rows : R;
  Pair sum[width] = {};
  if (c < to.C) {
#pragma unroll 4
    for (std::int64_t r = begin + threadIdx.y; r < end; r += kRows) {
      term.template add<width>(r, c, sum);
    }
  }
  for (int k = 0; k < width; ++k) {
    sums[threadIdx.y][threadIdx.x][k] = sum[k];
  }
  __syncthreads();
  if (threadIdx.y != 0 || c >= to.C) {
    return;
  }
  double* const chunk = to.sums + 2 * std::int64_t{blockIdx.y} * to.C;
  for (int k = 0; k < width; ++k) {
    for (int row = 1; row < kRows; ++row) {
      sum[k] = sum[k] + sums[row][threadIdx.x][k];
    }
    chunk[c + k] = sum[k].first;
    chunk[to.C + c + k] = sum[k].second;
  }
}

template <int width, class Term>
void launch_column_sums(const Backend::State& state,
                        std::int64_t R,
                        std::int64_t chunk_rows,
                        const Term& term,
                        const ColumnSums& to) {
  constexpr std::int64_t kOfBlock = kColumns * width;
  const dim3 grid(static_cast<unsigned>((to.C + kOfBlock - 1) / kOfBlock),
                  static_cast<unsigned>(to.chunks));
  const dim3 block(kColumns, kRows);
  column_sums_kernel<width><<<grid, block, 0, state.stream.get()>>>(term, R, chunk_rows, to);
  TROUPE_CUDA_CHECK(cudaGetLastError());
}

/// In the workspace, behind room for four floats a column.
template <int width, class Term>
ColumnSums sum_columns(const Backend::State& state,
                       std::int64_t R,
                       std::int64_t C,
                       const Term& term) {
  // Of (2, C) doubles: one is that of the floats, one takes the chunks' total.
  const auto places = static_cast<std::int64_t>(kWorkspaceBytes / sizeof(double)) / (2 * C);
  const std::int64_t room = places - 2;
  TROUPE_CHECK(room >= 1, "[normalization] ", C, " channels are too many for the workspace");
  // Whatever the width: more chunks would be more for those who add them up.
  const std::int64_t column_blocks = (C + kColumns - 1) / kColumns;
  const std::int64_t most = std::clamp<std::int64_t>(kBlocksWanted / column_blocks, 1, room);
  const std::int64_t wanted = std::clamp<std::int64_t>((R + kChunkRows - 1) / kChunkRows, 1, most);
  const std::int64_t chunk_rows = std::max<std::int64_t>((R + wanted - 1) / wanted, 1);
  const std::int64_t chunks = std::max<std::int64_t>((R + chunk_rows - 1) / chunk_rows, 1);
  const ColumnSums sums{state.workspace<double>() + 2 * C, chunks, C};
  launch_column_sums<width>(state, R, chunk_rows, term, sums);
  if (chunks <= kChunksOfAThread) {
    return sums;
  }
  const ColumnSums total{sums.sums + 2 * chunks * C, 1, C};
  launch_column_sums<1>(state, chunks, chunks, sums, total);
  return total;
}

/// The same, by two columns a thread where C and the tensors' addresses allow it.
template <class Term>
ColumnSums sum_columns(const Backend::State& state,
                       std::int64_t R,
                       std::int64_t C,
                       const Term& term) {
  return C % 2 == 0 && term.in_pairs() ? sum_columns<2>(state, R, C, term)
                                       : sum_columns<1>(state, R, C, term);
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

/// dgamma[c] and dbeta[c] from sums of dy and dy times the normalized x.
struct ParameterGradients {
  ColumnSums sums;
  float* dgamma;
  float* dbeta;

  __device__ void operator()(std::int64_t c) const {
    const Pair total = sums.total(c);
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

  bool in_pairs() const { return packable<2>(x); }

  template <int width>
  __device__ void add(std::int64_t r, std::int64_t c, Pair (&sum)[width]) const {
    const Pack<T, width> values = load<width>(x, r * C + c);
    for (int k = 0; k < width; ++k) {
      const double value = to_float(values.lane[k]);
      sum[k] = sum[k] + Pair{value, value * value};
    }
  }
};

struct BatchStatistics {
  ColumnSums sums;
  double n;
  float epsilon;
  float* mean;
  float* inverse_deviation;

  __device__ void operator()(std::int64_t c) const {
    const Pair total = sums.total(c);
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

/// The columns of elements [i, i + width) of a matrix of C columns: those of a pack lie side by side where C is a multiple of
/// its width.
template <int width>
class ColumnsOf {
 public:
  __device__ ColumnsOf(std::int64_t i, std::int64_t C) : C_(C) {
    // A division of 64 bits would take as long as all the rest.
    constexpr std::int64_t k32Bits = std::int64_t{1} << 32;
    first_ = i < k32Bits && C < k32Bits
                 ? static_cast<std::uint32_t>(i) % static_cast<std::uint32_t>(C)
                 : i % C;
  }

  /// Their values in x (C).
  __device__ Pack<float, width> of(const float* x) const {
    if (C_ % width == 0 && reinterpret_cast<std::uintptr_t>(x) % sizeof(Pack<float, width>) == 0) {
      return load<width>(x, first_);
    }
    Pack<float, width> values;
    std::int64_t c = first_;
    for (float& lane : values.lane) {
      lane = x[c];
      c = c + 1 == C_ ? 0 : c + 1;
    }
    return values;
  }

 private:
  std::int64_t C_;
  std::int64_t first_;
};

/// By column. Shapes: (C) each.
struct Columns {
  const float* gamma;
  const float* beta;
  const float* mean;
  const float* inverse_deviation;
  std::int64_t C;
};

template <class Op, class T, class Y>
struct Normalize {
  const T* x;
  Columns of;
  Y* y;

  template <int width>
  __device__ void at(std::int64_t i) const {
    const Pack<T, width> values = load<width>(x, i);
    Pack<Y, width> normalized;
    const ColumnsOf<width> columns(i, of.C);
    const Pack<float, width> mean = columns.of(of.mean);
    const Pack<float, width> gamma = columns.of(of.gamma);
    const Pack<float, width> inverse = columns.of(of.inverse_deviation);
    const Pack<float, width> beta = columns.of(of.beta);
    for (int k = 0; k < width; ++k) {
      normalized.lane[k] = from_float<Y>(Op{}.forward((to_float(values.lane[k]) - mean.lane[k]) *
                                                          (gamma.lane[k] * inverse.lane[k]) +
                                                      beta.lane[k]));
    }
    store<width>(y, i, normalized);
  }
};

void normalize(const Backend::State& state,
               ActivationKind activation,
               const Tensor& x,
               const Columns& of,
               const Tensor& y) {
  with_type_of(x, [&]<class T>() {
    with_type_of(y, [&]<class Y>() {
      const T* from = x.data<T>();
      Y* to = y.data<Y>();
      const bool packed = packable(from, to);
      if (activation == ActivationKind::relu) {
        for_each_index(state, x.elements(), packed, Normalize<Relu, T, Y>{from, of, to});
      } else {
        for_each_index(state, x.elements(), packed, Normalize<Identity, T, Y>{from, of, to});
      }
    });
  });
}

struct TakeIn {
  RunningStatistics running;
  const float* mean;
  const float* inverse_deviation;
  float* running_mean;
  float* running_variance;

  __device__ void operator()(std::int64_t c) const {
    running.take_in(mean[c], inverse_deviation[c], running_mean[c], running_variance[c]);
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

  bool in_pairs() const { return packable<2>(x, y, dy); }

  template <int width>
  __device__ void add(std::int64_t r, std::int64_t c, Pair (&sum)[width]) const {
    const std::int64_t i = r * C + c;
    const Pack<T, width> inputs = load<width>(x, i);
    const Pack<D, width> gradients = load<width>(dy, i);
    const Pack<Y, width> outputs = y ? load<width>(y, i) : Pack<Y, width>{};
    for (int k = 0; k < width; ++k) {
      const float of_y = to_float(gradients.lane[k]);
      const double g = y ? Relu{}.backward(to_float(outputs.lane[k]), of_y) : of_y;
      sum[k] = sum[k] + Pair{g, g * static_cast<double>(to_float(inputs.lane[k]) - mean[c + k])};
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
  ColumnSums sums;
  double n;
  const float* gamma;
  const float* inverse_deviation;
  float* dgamma;
  float* dbeta;
  Coefficients to;

  __device__ void operator()(std::int64_t c) const {
    const Pair total = sums.total(c);
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
  std::int64_t C;
  T* dx;  // may be dy

  template <int width>
  __device__ void at(std::int64_t i) const {
    const Pack<T, width> values = load<width>(x, i);
    const Pack<D, width> of_y = load<width>(dy, i);
    float gradients[width];
    for (int k = 0; k < width; ++k) {
      gradients[k] = to_float(of_y.lane[k]);
    }
    if (y) {
      const Pack<Y, width> outputs = load<width>(y, i);
      for (int k = 0; k < width; ++k) {
        gradients[k] = Relu{}.backward(to_float(outputs.lane[k]), gradients[k]);
      }
    }
    Pack<T, width> result;
    const ColumnsOf<width> columns(i, C);
    const Pack<float, width> center = columns.of(mean);
    const Pack<float, width> factor = columns.of(of.factor);
    const Pack<float, width> slope = columns.of(of.slope);
    const Pack<float, width> offset = columns.of(of.offset);
    for (int k = 0; k < width; ++k) {
      result.lane[k] = from_float<T>(
          gradients[k] * factor.lane[k] +
          ((to_float(values.lane[k]) - center.lane[k]) * slope.lane[k] + offset.lane[k]));
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
    return groups == 1 && S == 1 ? r : r / S * groups + c / width;
  }
};

/// Goes over a group's elements that belong to one thread of a team.
class Cursor {
 public:
  __device__ Cursor(const Groups& g, std::int64_t group, int thread)
      : first_(group / g.groups * g.S * g.C + group % g.groups * g.width),
        row_(thread / g.width),
        column_(thread % g.width) {}

  __device__ bool inside(const Groups& g) const { return row_ < g.S; }

  __device__ void advance(const Groups& g, int team) {
    row_ += team / g.width;
    column_ += team % g.width;
    if (column_ >= g.width) {
      column_ -= g.width;
      ++row_;
    }
  }

  /// Into x.
  __device__ std::int64_t index(const Groups& g) const { return first_ + row_ * g.C + column_; }

  __device__ std::int64_t channel(const Groups& g, std::int64_t group) const {
    return group % g.groups * g.width + column_;
  }

 private:
  std::int64_t first_;  // the group's first element
  std::int64_t row_;
  std::int64_t column_;
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

  template <int team>
  __device__ void run(std::int64_t group, int thread) const {
    Pair sum{0, 0};
    for (Cursor e(shape, group, thread); e.inside(shape); e.advance(shape, team)) {
      const double value = to_float(x[e.index(shape)]);
      sum = sum + Pair{value, value * value};
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
    for (Cursor e(shape, group, thread); e.inside(shape); e.advance(shape, team)) {
      const std::int64_t i = e.index(shape);
      const std::int64_t c = e.channel(shape, group);
      y[i] = from_float<Y>((to_float(x[i]) - statistics.mean) *
                               (gamma[c] * statistics.inverse_deviation) +
                           (beta ? beta[c] : 0.0f));
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

  template <int team>
  __device__ void run(std::int64_t group, int thread) const {
    const float center = mean ? mean[group] : 0.0f;
    const float inverse = inverse_deviation[group];
    Pair sum{0, 0};
    for (Cursor e(shape, group, thread); e.inside(shape); e.advance(shape, team)) {
      const std::int64_t i = e.index(shape);
      const double weighted = static_cast<double>(to_float(dy[i])) *
                              static_cast<double>(gamma[e.channel(shape, group)]);
      sum = sum + Pair{weighted, weighted * static_cast<double>(to_float(x[i]) - center)};
    }
    sum = team_sum<team>(sum);
    const NormalizationGradient of_group(
        1.0f, inverse, mean ? sum.first : 0.0, sum.second, static_cast<double>(shape.elements()));
    for (Cursor e(shape, group, thread); e.inside(shape); e.advance(shape, team)) {
      const std::int64_t i = e.index(shape);
      const float factor = gamma[e.channel(shape, group)] * inverse;
      dx[i] = from_float<T>(to_float(dy[i]) * factor +
                            ((to_float(x[i]) - center) * of_group.slope + of_group.offset));
    }
  }
};

template <int team, class F>
__global__ void __launch_bounds__(kSumBlock) for_each_group_kernel(const __grid_constant__ F f) {
  constexpr int kTeams = kSumBlock / team;
  const int thread = static_cast<int>(threadIdx.x) % team;
  const std::int64_t group = std::int64_t{blockIdx.x} * kTeams + threadIdx.x / team;
  if (group < f.shape.count()) {  // for all of a team or none of it
    f.template run<team>(group, thread);
  }
}

template <int team, class F>
void launch_groups(const Backend::State& state, const F& f) {
  constexpr std::int64_t kTeams = kSumBlock / team;
  const std::int64_t blocks = (f.shape.count() + kTeams - 1) / kTeams;
  for_each_group_kernel<team>
      <<<static_cast<unsigned>(blocks), kSumBlock, 0, state.stream.get()>>>(f);
  TROUPE_CUDA_CHECK(cudaGetLastError());
}

/// f.run<team>(group, thread) by all threads of a team for each group.
template <class F>
void for_each_group(const Backend::State& state, const F& f) {
  constexpr std::int64_t kWarpElements = 2048;
  if (f.shape.count() == 0) {
    return;
  }
  if (f.shape.elements() <= kWarpElements) {
    launch_groups<kWarp>(state, f);
  } else {
    launch_groups<kSumBlock>(state, f);
  }
}

/// dy, and dy times the normalized x.
template <class T, class D>
struct GroupParameterTerms {
  Groups shape;
  const T* x;
  const float* mean;
  const float* inverse_deviation;
  const D* dy;

  bool in_pairs() const { return packable<2>(x, dy); }

  template <int width>
  __device__ void add(std::int64_t r, std::int64_t c, Pair (&sum)[width]) const {
    const std::int64_t i = r * shape.C + c;
    const Pack<T, width> inputs = load<width>(x, i);
    const Pack<D, width> gradients = load<width>(dy, i);
    for (int k = 0; k < width; ++k) {
      const std::int64_t group = shape.group_of(r, c + k);
      const double gradient = to_float(gradients.lane[k]);
      const double centred = to_float(inputs.lane[k]) - (mean ? mean[group] : 0.0f);
      sum[k] = sum[k] +
               Pair{gradient, gradient * centred * static_cast<double>(inverse_deviation[group])};
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
  const ColumnSums sums =
      sum_columns(state,
                  shape.B * shape.S,
                  shape.C,
                  GroupParameterTerms<T, D>{.shape = shape,
                                            .x = a.x.data<T>(),
                                            .mean = data_of(a.mean),
                                            .inverse_deviation = a.inverse_deviation.data<float>(),
                                            .dy = a.dy.data<D>()});
  for_each_column(
      state, shape.C, ParameterGradients{sums, a.dgamma.data<float>(), data_of(a.dbeta)});
  for_each_group(state,
                 GroupInputGradient<T, D>{.shape = shape,
                                          .x = a.x.data<T>(),
                                          .gamma = a.gamma.data<float>(),
                                          .mean = data_of(a.mean),
                                          .inverse_deviation = a.inverse_deviation.data<float>(),
                                          .dy = a.dy.data<D>(),
                                          .dx = a.dx.data<T>()});
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
  const ColumnSums sums = sum_columns(state,
                                      R,
                                      C,
                                      BatchGradientTerms<T, Y, D>{.x = a.x.data<T>(),
                                                                  .y = output,
                                                                  .dy = a.dy.data<D>(),
                                                                  .mean = a.mean.data<float>(),
                                                                  .C = C});
  float* values = state.workspace<float>();  // (3, C), before the sums
  const Coefficients coefficients{values, values + C, values + 2 * C};
  for_each_column(state,
                  C,
                  BatchGradients{.sums = sums,
                                 .n = static_cast<double>(R),
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
                                         .C = C,
                                         .dx = a.dx.data<T>()};
  for_each_index(state, a.x.elements(), packable(pass.x, pass.y, pass.dy, pass.dx), pass);
}

template <class Arguments>
Columns columns_of(const Arguments& a, const Tensor& mean, const float* inverse_deviation) {
  return {.gamma = a.gamma.template data<float>(),
          .beta = a.beta.template data<float>(),
          .mean = mean.data<float>(),
          .inverse_deviation = inverse_deviation,
          .C = a.x.shape().back()};
}

}  // namespace

void batch_norm_forward(Stream& stream, ActivationKind activation, const NormalizationForward& a) {
  const Backend::State& state = activate(stream);
  const std::int64_t R = a.x.shape()[0];
  const std::int64_t C = a.x.shape()[1];
  ColumnSums sums{};
  with_type_of(a.x, [&]<class T>() {
    sums = sum_columns(state, R, C, Moments<T>{a.x.data<T>(), C});
  });
  for_each_column(state,
                  C,
                  BatchStatistics{.sums = sums,
                                  .n = static_cast<double>(R),
                                  .epsilon = a.epsilon,
                                  .mean = a.mean.data<float>(),
                                  .inverse_deviation = a.inverse_deviation.data<float>()});
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
                         .running_variance = a.running_variance.data<float>()});
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
