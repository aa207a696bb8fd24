#include "kernels/activation.hpp"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/functors/activation.hpp"

namespace troupe::cuda {

namespace {

template <class Op, class T>
struct Forward {
  const T* x;
  T* y;

  template <int width>
  __device__ void at(std::int64_t i) const {
    Pack<T, width> values = load<width>(x, i);
#pragma unroll
    for (T& lane : values.lane) {
      lane = from_float<T>(Op{}.forward(to_float(lane)));
    }
    store<width>(y, i, values);
  }
};

/// `saved` and the gradients may be of two types.
template <class Op, class S, class T>
struct Backward {
  const S* saved;
  const T* dy;
  T* dx;

  template <int width>
  __device__ void at(std::int64_t i) const {
    const Pack<S, width> kept = load<width>(saved, i);
    Pack<T, width> values = load<width>(dy, i);
#pragma unroll
    for (int k = 0; k < width; ++k) {
      values.lane[k] =
          from_float<T>(Op{}.backward(to_float(kept.lane[k]), to_float(values.lane[k])));
    }
    store<width>(dx, i, values);
  }
};

/// Of element i of y, (R, columns): where a and b stand in x.
template <class Op, class T>
struct GateForward {
  const T* x;
  std::int64_t columns;
  T* y;

  template <int width>
  __device__ void at(std::int64_t i) const {
    const std::int64_t first = Place(i, columns).row * columns + i;
    Pack<T, width> values = load<width>(x, first);
    const Pack<T, width> other = load<width>(x, first + columns);
#pragma unroll
    for (int k = 0; k < width; ++k) {
      const float f = Op{}.forward(to_float(values.lane[k]));
      values.lane[k] = from_float<T>(f * to_float(other.lane[k]));
    }
    store<width>(y, i, values);
  }
};

template <class Op, class T, class D>
struct GateBackward {
  const T* x;
  const D* dy;
  std::int64_t columns;
  T* dx;

  template <int width>
  __device__ void at(std::int64_t i) const {
    const std::int64_t first = Place(i, columns).row * columns + i;
    Pack<T, width> a = load<width>(x, first);
    Pack<T, width> b = load<width>(x, first + columns);
    const Pack<D, width> gradient = load<width>(dy, i);
#pragma unroll
    for (int k = 0; k < width; ++k) {
      float da;
      float db;
      Gate<Op>{}.backward(
          to_float(a.lane[k]), to_float(b.lane[k]), to_float(gradient.lane[k]), da, db);
      a.lane[k] = from_float<T>(da);
      b.lane[k] = from_float<T>(db);
    }
    store<width>(dx, first, a);
    store<width>(dx, first + columns, b);
  }
};

template <class Op, class T, class Y>
struct BiasAndForward {
  const T* x;
  const float* bias;  // (columns), or null
  std::int64_t columns;
  Y* y;

  template <int width>
  __device__ void at(std::int64_t i) const {
    const Pack<T, width> before = load<width>(x, i);
    Pack<Y, width> values;
    std::int64_t c = bias ? Place(i, columns).column : 0;
#pragma unroll
    for (int k = 0; k < width; ++k) {
      float sum = to_float(before.lane[k]);
      if (bias) {
        sum += bias[c];
        c = c + 1 == columns ? 0 : c + 1;
      }
      values.lane[k] = from_float<Y>(Op{}.forward(sum));
    }
    store<width>(y, i, values);
  }
};

}  // namespace

void activation_forward(Stream& stream, ActivationKind kind, const Tensor& x, const Tensor& y) {
  const Backend::State& state = activate(stream);
  with_type_of(x, [&]<class T>() {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    with_activation(kind, [&](auto op) {
      for_each_index(state, x.elements(), pack_width(from, to), Forward<decltype(op), T>{from, to});
    });
  });
}

void activation_backward(
    Stream& stream, ActivationKind kind, const Tensor& saved, const Tensor& dy, const Tensor& dx) {
  const Backend::State& state = activate(stream);
  with_type_of(saved, [&]<class S>() {
    with_type_of(dy, [&]<class T>() {
      const S* kept = saved.data<S>();
      const T* from = dy.data<T>();
      T* to = dx.data<T>();
      with_activation(kind, [&](auto op) {
        for_each_index(state,
                       dy.elements(),
                       pack_width(kept, from, to),
                       Backward<decltype(op), S, T>{kept, from, to});
      });
    });
  });
}

void gate_forward(Stream& stream, ActivationKind kind, const Tensor& x, const Tensor& y) {
  const Backend::State& state = activate(stream);
  const std::int64_t columns = y.shape()[1];
  with_type_of(x, [&]<class T>() {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    const auto width = pack_width(from, to).dividing(columns);
    with_activation(kind, [&](auto op) {
      for_each_index(state, y.elements(), width, GateForward<decltype(op), T>{from, columns, to});
    });
  });
}

void gate_backward(
    Stream& stream, ActivationKind kind, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  const Backend::State& state = activate(stream);
  const std::int64_t columns = dy.shape()[1];
  with_type_of(x, [&]<class T>() {
    with_type_of(dy, [&]<class D>() {
      const T* from = x.data<T>();
      const D* gradient = dy.data<D>();
      T* to = dx.data<T>();
      const auto width = pack_width(from, gradient, to).dividing(columns);
      with_activation(kind, [&](auto op) {
        for_each_index(state,
                       dy.elements(),
                       width,
                       GateBackward<decltype(op), T, D>{from, gradient, columns, to});
      });
    });
  });
}

void bias_and_activation(const Backend::State& state,
                         ActivationKind kind,
                         const Tensor& x,
                         const float* bias,
                         const Tensor& y) {
  with_type_of(x, [&]<class T>() {
    with_type_of(y, [&]<class Y>() {
      const T* from = x.data<T>();
      Y* to = y.data<Y>();
      with_activation(kind, [&](auto op) {
        const BiasAndForward<decltype(op), T, Y> pass{from, bias, y.shape().back(), to};
        for_each_index(state, y.elements(), pack_width(from, to), pass);
      });
    });
  });
}

}  // namespace troupe::cuda
