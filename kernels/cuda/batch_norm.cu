// Batch normalization; sums and passes by columns.cuh.
#include "kernels/cuda/columns.cuh"
#include "kernels/functors/activation.hpp"
#include "kernels/functors/normalization.hpp"
#include "kernels/normalization.hpp"

#include <limits>

namespace troupe::cuda {

namespace {

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
    // Squares beyond float's range are those of a run that has diverged, which shall be seen.
    const bool beyond = total.second > std::numeric_limits<double>::max();
    const double squares = beyond ? std::numeric_limits<double>::quiet_NaN() : total.second;
    const NormalizationStatistics statistics(total.first, squares, n, epsilon);
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
      result.lane[k] =
          from_float<T>(gradient * columns.factor.lane[k] +
                        ((to_float(read.x.lane[k]) - columns.mean.lane[k]) * columns.slope.lane[k] +
                         columns.offset.lane[k]));
    }
    store<width>(dx, i, result);
  }
};

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

}  // namespace troupe::cuda
