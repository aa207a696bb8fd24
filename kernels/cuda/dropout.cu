#include "kernels/cuda/elementwise.cuh"
#include "kernels/dropout.hpp"
#include "kernels/functors/dropout.hpp"

namespace troupe::cuda {

namespace {

template <class T>
struct DropoutPass {
  Dropout op;
  std::uint64_t first;
  const T* x;
  T* y;

  template <int width>
  __device__ void at(std::int64_t i) const {
    Pack<T, width> values = load<width>(x, i);
#pragma unroll
    for (int k = 0; k < width; ++k) {
      values.lane[k] = from_float<T>(
          op.apply(first + static_cast<std::uint64_t>(i + k), to_float(values.lane[k])));
    }
    store<width>(y, i, values);
  }
};

}  // namespace

void dropout(Stream& stream,
             const RandomStream& random,
             std::uint64_t first,
             float rate,
             const Tensor& x,
             const Tensor& y) {
  const Backend::State& state = activate(stream);
  with_type_of(x, [&]<class T>() {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    for_each_index(state,
                   x.elements(),
                   pack_width(from, to),
                   DropoutPass<T>{Dropout(random, rate), first, from, to});
  });
}

}  // namespace troupe::cuda
