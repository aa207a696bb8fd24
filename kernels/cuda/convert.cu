#include "kernels/convert.hpp"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/pad.hpp"

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

/// A block a row of y.
template <class T>
__global__ void __launch_bounds__(kElementwiseBlock)
    pad_rows_kernel(const T* x, std::int64_t rows, std::int64_t columns, T* y, std::int64_t pitch) {
  if (blockIdx.x >= rows) {
    columns = 0;
  }
  const T* from = x + std::int64_t{blockIdx.x} * columns;
  T* to = y + std::int64_t{blockIdx.x} * pitch;
#pragma unroll 4
  for (std::int64_t c = threadIdx.x; c < pitch; c += kElementwiseBlock) {
    to[c] = c < columns ? from[c] : T{};
  }
}

template <class T>
void pad_rows(const Backend::State& state, const Tensor& x, const Tensor& y) {
  const auto rows = static_cast<unsigned>(y.shape()[0]);
  pad_rows_kernel<T><<<rows, kElementwiseBlock, 0, state.stream.get()>>>(
      x.data<T>(), x.shape()[0], x.shape()[1], y.data<T>(), y.shape()[1]);
  TROUPE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void pad_rows(const Backend::State& state, const Tensor& x, const Tensor& y) {
  if (x.type() == DType::bfloat16) {
    pad_rows<BFloat16>(state, x, y);
  } else {
    pad_rows<float>(state, x, y);
  }
}

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
