#include "kernels/activation.hpp"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/functors/activation.hpp"

namespace troupe::cuda {

namespace {

template <class Op>
struct Forward {
  const float* x;
  float* y;

  template <int width>
  __device__ void at(std::int64_t i) const {
    Pack<float, width> values = load<width>(x, i);
    for (float& lane : values.lane) {
      lane = Op{}.forward(lane);
    }
    store<width>(y, i, values);
  }
};

template <class Op>
struct Backward {
  const float* saved;
  const float* dy;
  float* dx;

  template <int width>
  __device__ void at(std::int64_t i) const {
    const Pack<float, width> kept = load<width>(saved, i);
    Pack<float, width> values = load<width>(dy, i);
    for (int k = 0; k < width; ++k) {
      values.lane[k] = Op{}.backward(kept.lane[k], values.lane[k]);
    }
    store<width>(dx, i, values);
  }
};

template <class Op, class T>
struct BiasAndForward {
  const T* x;
  const float* bias;  // (columns), or null
  std::int64_t columns;
  float* y;

  template <int width>
  __device__ void at(std::int64_t i) const {
    const Pack<T, width> before = load<width>(x, i);
    Pack<float, width> values;
    std::int64_t c = bias ? i % columns : 0;
    for (int k = 0; k < width; ++k) {
      float sum = to_float(before.lane[k]);
      if (bias) {
        sum += bias[c];
        c = c + 1 == columns ? 0 : c + 1;
      }
      values.lane[k] = Op{}.forward(sum);
    }
    store<width>(y, i, values);
  }
};

template <class T>
void bias_and_activation(const Backend::State& state,
                         ActivationKind kind,
                         const T* x,
                         const float* bias,
                         const Tensor& y) {
  float* to = y.data<float>();
  with_activation(kind, [&](auto op) {
    const BiasAndForward<decltype(op), T> pass{x, bias, y.shape().back(), to};
    for_each_index(state, y.elements(), packable(x, to), pass);
  });
}

}  // namespace

void activation_forward(Stream& stream, ActivationKind kind, const Tensor& x, const Tensor& y) {
  const Backend::State& state = activate(stream);
  const float* from = x.data<float>();
  float* to = y.data<float>();
  with_activation(kind, [&](auto op) {
    for_each_index(state, x.elements(), packable(from, to), Forward<decltype(op)>{from, to});
  });
}

void activation_backward(
    Stream& stream, ActivationKind kind, const Tensor& saved, const Tensor& dy, const Tensor& dx) {
  const Backend::State& state = activate(stream);
  const float* kept = saved.data<float>();
  const float* from = dy.data<float>();
  float* to = dx.data<float>();
  with_activation(kind, [&](auto op) {
    for_each_index(
        state, dy.elements(), packable(kept, from, to), Backward<decltype(op)>{kept, from, to});
  });
}

void bias_and_activation(const Backend::State& state,
                         ActivationKind kind,
                         const Tensor& x,
                         const float* bias,
                         const Tensor& y) {
  if (x.type() == DType::bfloat16) {
    bias_and_activation(state, kind, x.data<BFloat16>(), bias, y);
  } else {
    bias_and_activation(state, kind, x.data<float>(), bias, y);
  }
}

}  // namespace troupe::cuda
