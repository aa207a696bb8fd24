#include "kernels/convert.hpp"
#include "kernels/cuda/elementwise.cuh"

namespace troupe::cuda {

namespace {

template <class From, class To>
struct Convert {
  const From* x;
  To* y;

  template <int width>
  __device__ void at(std::int64_t i) const {
    const Pack<From, width> from = load<width>(x, i);
    Pack<To, width> to;
    for (int k = 0; k < width; ++k) {
      to.lane[k] = from_float<To>(to_float(from.lane[k]));
    }
    store<width>(y, i, to);
  }
};

struct AddConverted {
  const BFloat16* x;
  float* y;

  template <int width>
  __device__ void at(std::int64_t i) const {
    const Pack<BFloat16, width> from = load<width>(x, i);
    Pack<float, width> to = load<width>(y, i);
    for (int k = 0; k < width; ++k) {
      to.lane[k] += to_float(from.lane[k]);
    }
    store<width>(y, i, to);
  }
};

template <class From, class To>
void convert(const Backend::State& state, const Tensor& x, const Tensor& y) {
  const From* from = x.data<From>();
  To* to = y.data<To>();
  for_each_index(state, x.elements(), packable(from, to), Convert<From, To>{from, to});
}

}  // namespace

void convert(Stream& stream, const Tensor& x, const Tensor& y) {
  const Backend::State& state = activate(stream);
  if (x.type() == DType::float32) {
    convert<float, BFloat16>(state, x, y);
  } else {
    convert<BFloat16, float>(state, x, y);
  }
}

void add_converted(const Backend::State& state, const Tensor& x, const Tensor& y) {
  const BFloat16* from = x.data<BFloat16>();
  float* to = y.data<float>();
  for_each_index(state, y.elements(), packable(from, to), AddConverted{from, to});
}

}  // namespace troupe::cuda
