#include "kernels/elementwise.hpp"

#include "kernels/functors/activation.hpp"

#include <algorithm>

namespace troupe::cpu::TROUPE_ISA {

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

void copy_columns(Stream& /*stream*/,
                  const Tensor& x,
                  std::int64_t from,
                  const Tensor& y,
                  std::int64_t to,
                  std::int64_t columns) {
  const std::int64_t a = x.shape().back();
  const std::int64_t b = y.shape().back();
  for (std::int64_t r = 0; r * a < x.elements(); ++r) {
    std::copy_n(x.data<float>() + r * a + from, columns, y.data<float>() + r * b + to);
  }
}

void fill(Stream& /*stream*/, const Tensor& x, double value) {
  if (x.type() == DType::float64) {
    std::fill_n(x.data<double>(), x.elements(), value);
  } else {
    std::fill_n(x.data<float>(), x.elements(), static_cast<float>(value));
  }
}

void scale(Stream& /*stream*/, const Tensor& x, float factor) {
  for (float& element : x.span<float>()) {
    element *= factor;
  }
}

}  // namespace troupe::cpu::TROUPE_ISA
