#include "kernels/elementwise.hpp"

#include "kernels/functors/activation.hpp"

#include <algorithm>

namespace troupe::cpu {

void add(Stream& /*stream*/,
         const Tensor& a,
         const Tensor& b,
         ActivationKind activation,
         const Tensor& y) {
  const std::int64_t n = y.elements();
  const float* left = a.data<float>();
  const float* right = b.data<float>();
  float* to = y.data<float>();
  const auto with = [&](auto op) {
#pragma GCC ivdep  // `to` may be `left` or `right`, but never a shifted one
    for (std::int64_t i = 0; i < n; ++i) {
      to[i] = op.forward(left[i] + right[i]);
    }
  };
  activation == ActivationKind::relu ? with(Relu{}) : with(Identity{});
}

void copy_columns(Stream& /*stream*/, const ColumnsCopy& copy) {
  const std::int64_t rows = copy.x.shape()[0];
  const float* from = copy.x.data<float>() + copy.x_first;
  float* to = copy.y.data<float>() + copy.y_first;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::copy_n(from + r * copy.x.shape()[1], copy.width, to + r * copy.y.shape()[1]);
  }
}

}  // namespace troupe::cpu
