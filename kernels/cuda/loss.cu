// Squared error; the rest of kernels/loss.hpp is in softmax.cu. Terms are added up in double, in an order that depends on their number
// alone (sum.cuh).
#include "kernels/cuda/sum.cuh"
#include "kernels/loss.hpp"

namespace troupe::cuda {

namespace {

/// 1/2 (y - target)^2, and the gradient on the way.
struct SquaredError {
  const float* y;
  const float* target;
  float* dy;  // may be y; or null
  float share;

  __device__ double operator()(std::int64_t i) const {
    const float value = y[i];
    const float wanted = target[i];
    if (dy) {
      dy[i] = (value - wanted) * share;
    }
    const double difference = static_cast<double>(value) - static_cast<double>(wanted);
    return 0.5 * (difference * difference);
  }
};

}  // namespace

void squared_error(
    Stream& stream, const Tensor& y, const Tensor& target, const Tensor& dy, const Tensor& result) {
  const Backend::State& state = activate(stream);
  const SquaredError error{.y = y.data<float>(),
                           .target = target.data<float>(),
                           .dy = dy ? dy.data<float>() : nullptr,
                           .share = 1.0f / static_cast<float>(y.shape()[0])};
  const Part all{0, y.elements()};
  double* out = result.data<double>();
  sum_terms(state, error, {&all, 1}, out);
  TROUPE_CUDA_CHECK(cudaMemsetAsync(
      out + 1, 0, sizeof(double), state.stream.get()));  // 0.0: nothing is right or wrong
}

}  // namespace troupe::cuda
