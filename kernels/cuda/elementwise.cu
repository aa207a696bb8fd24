#include "kernels/cuda/elementwise.cuh"
#include "kernels/elementwise.hpp"
#include "kernels/functors/activation.hpp"

namespace troupe::cuda {

namespace {

template <class T>
struct Fill {
  T value;
  T* x;

  template <int width>
  __device__ void at(std::int64_t i) const {
    Pack<T, width> values;
#pragma unroll
    for (T& lane : values.lane) {
      lane = value;
    }
    store<width>(x, i, values);
  }
};

struct Scale {
  float factor;
  float* x;

  template <int width>
  __device__ void at(std::int64_t i) const {
    Pack<float, width> values = load<width>(x, i);
#pragma unroll
    for (float& lane : values.lane) {
      lane *= factor;
    }
    store<width>(x, i, values);
  }
};

template <class Op, class A, class B, class Y>
struct Add {
  const A* a;
  const B* b;
  Y* y;

  template <int width>
  __device__ void at(std::int64_t i) const {
    const Pack<A, width> left = load<width>(a, i);
    const Pack<B, width> right = load<width>(b, i);
    Pack<Y, width> sum;
#pragma unroll
    for (int k = 0; k < width; ++k) {
      sum.lane[k] = from_float<Y>(Op{}.forward(to_float(left.lane[k]) + to_float(right.lane[k])));
    }
    store<width>(y, i, sum);
  }
};

template <class A, class B, class Y>
void add(const Backend::State& state,
         const Tensor& a,
         const Tensor& b,
         ActivationKind activation,
         const Tensor& y) {
  const A* left = a.data<A>();
  const B* right = b.data<B>();
  Y* to = y.data<Y>();
  const auto width = pack_width(left, right, to);
  if (activation == ActivationKind::relu) {
    for_each_index(state, y.elements(), width, Add<Relu, A, B, Y>{left, right, to});
  } else {
    for_each_index(state, y.elements(), width, Add<Identity, A, B, Y>{left, right, to});
  }
}

/// Of element i of (R, columns).
template <class X, class Y>
struct CopyColumns {
  const X* x;
  Y* y;
  std::int64_t columns;
  std::int64_t x_row;
  std::int64_t y_row;

  template <int one>
  __device__ void at(std::int64_t i) const {
    const Place at(i, columns);
    y[at.row * y_row + at.column] = from_float<Y>(to_float(x[at.row * x_row + at.column]));
  }
};

template <class T>
void fill_with(const Backend::State& state, const Tensor& x, T value) {
  for_each_index(state, x.elements(), pack_width(x.data<T>()), Fill<T>{value, x.data<T>()});
}

}  // namespace

void fill(Stream& stream, const Tensor& x, double value) {
  const Backend::State& state = activate(stream);
  if (x.type() == DType::float64) {
    fill_with(state, x, value);
  } else {
    fill_with(state, x, static_cast<float>(value));
  }
}

void scale(Stream& stream, const Tensor& x, float factor) {
  const Backend::State& state = activate(stream);
  for_each_index(state, x.elements(), pack_width(x.data<float>()), Scale{factor, x.data<float>()});
}

void add(
    Stream& stream, const Tensor& a, const Tensor& b, ActivationKind activation, const Tensor& y) {
  const Backend::State& state = activate(stream);
  with_type_of(a, [&]<class A>() {
    with_type_of(b, [&]<class B>() {
      with_type_of(y, [&]<class Y>() { add<A, B, Y>(state, a, b, activation, y); });
    });
  });
}

void copy_columns(Stream& stream,
                  const Tensor& x,
                  std::int64_t from,
                  const Tensor& y,
                  std::int64_t to,
                  std::int64_t columns) {
  const Backend::State& state = activate(stream);
  const std::int64_t a = x.shape().back();
  const std::int64_t b = y.shape().back();
  with_type_of(x, [&]<class X>() {
    with_type_of(y, [&]<class Y>() {
      const CopyColumns<X, Y> pass{x.data<X>() + from, y.data<Y>() + to, columns, a, b};
      for_each_index(state, x.elements() / a * columns, pass);
    });
  });
}

cudaError_t kernels_load() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, for_each_index_kernel<kPackWidth, Scale>);
}

}  // namespace troupe::cuda
