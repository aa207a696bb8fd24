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

template <class Op>
struct BiasAndForward {
  const float* bias;  // (columns)
  std::int64_t columns;
  float* y;

  template <int width>
  __device__ void at(std::int64_t i) const {
    Pack<float, width> values = load<width>(y, i);
    std::int64_t c = i % columns;
    for (float& lane : values.lane) {
      lane = Op{}.forward(lane + bias[c]);
      c = c + 1 == columns ? 0 : c + 1;
    }
    store<width>(y, i, values);
  }
};

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
                         const float* bias,
                         const Tensor& y) {
  float* to = y.data<float>();
  with_activation(kind, [&](auto op) {
    using Op = decltype(op);
    if (bias) {
      for_each_index(
          state, y.elements(), packable(to), BiasAndForward<Op>{bias, y.shape().back(), to});
    } else {
      for_each_index(state, y.elements(), packable(to), Forward<Op>{to, to});
    }
  });
}

}  // namespace troupe::cuda
