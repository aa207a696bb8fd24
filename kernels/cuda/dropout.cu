#include "kernels/cuda/elementwise.cuh"
#include "kernels/dropout.hpp"
#include "kernels/functors/dropout.hpp"

namespace troupe::cuda {

namespace {

struct DropoutPass {
  Dropout op;
  std::uint64_t first;
  const float* x;
  float* y;

  template <int width>
  __device__ void at(std::int64_t i) const {
    Pack<float, width> values = load<width>(x, i);
    for (int k = 0; k < width; ++k) {
      values.lane[k] = op.apply(first + static_cast<std::uint64_t>(i + k), values.lane[k]);
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
  const float* from = x.data<float>();
  float* to = y.data<float>();
  for_each_index(
      state, x.elements(), packable(from, to), DropoutPass{Dropout(random, rate), first, from, to});
}

}  // namespace troupe::cuda
