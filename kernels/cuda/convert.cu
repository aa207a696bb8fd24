#include "kernels/convert.hpp"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/pad.hpp"
#include "kernels/cuda/shifted.cuh"

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
#pragma unroll
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
#pragma unroll
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
  for_each_index(state, x.elements(), pack_width(from, to), Convert<From, To>{from, to});
}

/// A block a row of y, in packs of 16 bytes of y wherever the rows of both begin. What is read together with a row's first and last
/// elements lies in the 16 bytes around them.
template <class T>
__global__ void __launch_bounds__(kElementwiseBlock)
    pad_rows_kernel(const T* x, std::int64_t rows, std::int64_t columns, T* y, std::int64_t pitch) {
  constexpr int width = 16 / sizeof(T);
  const std::int64_t row = blockIdx.x;
  const T* from = x + row * columns;
  T* to = y + row * pitch;
  const int kept = static_cast<int>(row >= rows ? 0 : columns < pitch ? columns : pitch);
  const int before =
      static_cast<int>((16 - reinterpret_cast<std::uintptr_t>(to) % 16) % 16 / sizeof(T));
  const int first = before < kept ? before : kept;
  const int packs = (kept - first) / width;
  auto* const packs_of_row = reinterpret_cast<std::uint32_t*>(to + first);
  for_each_shifted_pack<kElementwiseBlock>(
      from + first, packs, static_cast<int>(threadIdx.x), [&](int pack, const auto& words) {
        store<4>(packs_of_row, 4 * pack, words);
      });
  const auto one_by_one = [&](std::int64_t from_column, std::int64_t end) {
    for (std::int64_t c = from_column + threadIdx.x; c < end; c += kElementwiseBlock) {
      to[c] = c < kept ? from[c] : T{};
    }
  };
  one_by_one(0, first);
  one_by_one(first + packs * width, pitch);
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
  for_each_index(state, y.elements(), pack_width(from, to), AddConverted{from, to});
}

}  // namespace troupe::cuda
