// What the jobs of an Optimizer and of a ServerOptimizer have in common. Private to actors.
#pragma once

#include "kernels/stream.hpp"
#include "kernels/update.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace troupe {

/// x, or its copy where it is on another device. Nothing stays nothing.
inline Tensor here(Stream& stream, const Tensor& x) {
  if (!x || x.device() == stream.device()) {
    return x;
  }
  Tensor copied = stream.allocate(x.shape());
  copy(stream, x, copied);
  return copied;
}

/// |a - b|^2. Waits for it.
inline double square_of_distance(Stream& stream, const Tensor& a, const Tensor& b) {
  Tensor out = stream.allocate({1}, DType::float64);
  squared_distance(stream, a, b, out);
  out.set_ready(stream.record());
  return to_host(out)[0];
}

/// Root of a sum of squares over the parameters; padding is not among them.
inline double root_mean_square(double sum, std::int64_t parameters) {
  return std::sqrt(sum / static_cast<double>(std::max<std::int64_t>(1, parameters)));
}

}  // namespace troupe
