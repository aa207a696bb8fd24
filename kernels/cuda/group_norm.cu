// Layer, RMS and group normalization: one kernel, in which a team of threads, a warp or a block, has the elements that share a mean.
#include "kernels/cuda/columns.cuh"
#include "kernels/functors/normalization.hpp"
#include "kernels/normalization.hpp"

namespace troupe::cuda {

namespace {

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
    return {__shfl_sync(kAllLanes, warp_sum(value.first), 0),
            __shfl_sync(kAllLanes, warp_sum(value.second), 0)};
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
        const double weighted =
            static_cast<double>(to_float(gradients.lane[k])) * static_cast<double>(weight.lane[k]);
        sum =
            sum + Pair{weighted, weighted * static_cast<double>(to_float(values.lane[k]) - center)};
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
        result.lane[k] =
            from_float<T>(to_float(gradients.lane[k]) * (weight.lane[k] * inverse) +
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

/// x, or room for its like where packs cannot begin with x: by the width of packs it is settled which thread adds up what, and
/// that shall not depend on where x lies.
Tensor room_for_packs(Stream& stream, const Tensor& x) {
  const bool fits = reinterpret_cast<std::uintptr_t>(first_byte(x)) % 16 == 0;
  return fits ? x : stream.allocate(x.shape(), x.type());
}

void copy_where_apart(Stream& stream, const Tensor& from, const Tensor& to) {
  if (first_byte(from) != first_byte(to)) {
    cuda::copy(stream, from, to);
  }
}

Tensor in_packs(Stream& stream, const Tensor& x) {
  Tensor y = room_for_packs(stream, x);
  copy_where_apart(stream, x, y);
  return y;
}

void groups_forward(Stream& stream, const Groups& shape, const NormalizationForward& a) {
  const Backend::State& state = activate(stream);
  const Tensor x = in_packs(stream, a.x);
  const Tensor y = room_for_packs(stream, a.y);
  with_type_of(x, [&]<class T>() {
    with_type_of(y, [&]<class Y>() {
      for_each_group(state,
                     pack_width(x.data<T>(), y.data<Y>()),
                     GroupForward<T, Y>{.shape = shape,
                                        .x = x.data<T>(),
                                        .gamma = a.gamma.data<float>(),
                                        .beta = data_of(a.beta),
                                        .epsilon = a.epsilon,
                                        .y = y.data<Y>(),
                                        .mean = data_of(a.mean),
                                        .inverse_deviation = a.inverse_deviation.data<float>()});
    });
  });
  copy_where_apart(stream, y, a.y);
}

template <class T, class D>
void groups_backward(const Backend::State& state,
                     const Groups& shape,
                     const NormalizationBackward& a,
                     const GroupInputGradient<T, D>& pass) {
  // First, because dx may be dy.
  sum_columns(state,
              shape.B * shape.S,
              shape.C,
              GroupParameterTerms<T, D>{.shape = shape,
                                        .x = pass.x,
                                        .mean = pass.mean,
                                        .inverse_deviation = pass.inverse_deviation,
                                        .dy = pass.dy},
              ParameterGradients{a.dgamma.data<float>(), data_of(a.dbeta)});
  for_each_group(state, pack_width(pass.x, pass.dy, pass.dx), pass);
}

void groups_backward(Stream& stream, const Groups& shape, const NormalizationBackward& a) {
  const Backend::State& state = activate(stream);
  const Tensor x = in_packs(stream, a.x);
  const Tensor dy = in_packs(stream, a.dy);
  const Tensor dx = room_for_packs(stream, a.dx);
  with_type_of(x, [&]<class T>() {
    with_type_of(dy, [&]<class D>() {
      groups_backward<T, D>(state,
                            shape,
                            a,
                            {.shape = shape,
                             .x = x.data<T>(),
                             .gamma = a.gamma.data<float>(),
                             .mean = data_of(a.mean),
                             .inverse_deviation = a.inverse_deviation.data<float>(),
                             .dy = dy.data<D>(),
                             .dx = dx.data<T>()});
    });
  });
  copy_where_apart(stream, dx, a.dx);
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
