#include "kernels/activation.hpp"

#include "kernels/functors/activation.hpp"

namespace troupe::cpu::TROUPE_ISA {

// No list of functors here: the visitor instantiates each.
void activation_forward(Stream& /*stream*/, ActivationKind kind, const Tensor& x, const Tensor& y) {
  const std::int64_t n = x.elements();
  const float* from = x.data<float>();
  float* to = y.data<float>();
  with_activation(kind, [&](auto op) {
#pragma GCC ivdep  // `to` may be `from`, but never a shifted one
    for (std::int64_t i = 0; i < n; ++i) {
      to[i] = op.forward(from[i]);
    }
  });
}

void activation_backward(Stream& /*stream*/,
                         ActivationKind kind,
                         const Tensor& saved,
                         const Tensor& dy,
                         const Tensor& dx) {
  const std::int64_t n = dy.elements();
  const float* kept = saved.data<float>();
  const float* from = dy.data<float>();
  float* to = dx.data<float>();
  with_activation(kind, [&](auto op) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) {
      to[i] = op.backward(kept[i], from[i]);
    }
  });
}

void gate_forward(Stream& /*stream*/, ActivationKind kind, const Tensor& x, const Tensor& y) {
  const std::int64_t width = y.shape()[1];
  with_activation(kind, [&](auto op) {
    for (std::int64_t r = 0; r < y.shape()[0]; ++r) {
      const float* a = x.data<float>() + 2 * r * width;
      float* to = y.data<float>() + r * width;
#pragma GCC ivdep
      for (std::int64_t i = 0; i < width; ++i) {
        to[i] = op.forward(a[i]) * a[width + i];
      }
    }
  });
}

void gate_backward(
    Stream& /*stream*/, ActivationKind kind, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  const std::int64_t width = dy.shape()[1];
  with_activation(kind, [&](auto op) {
    const Gate<decltype(op)> gate;
    for (std::int64_t r = 0; r < dy.shape()[0]; ++r) {
      const float* a = x.data<float>() + 2 * r * width;
      const float* from = dy.data<float>() + r * width;
      float* to = dx.data<float>() + 2 * r * width;
#pragma GCC ivdep
      for (std::int64_t i = 0; i < width; ++i) {
        gate.backward(a[i], a[width + i], from[i], to[i], to[width + i]);
      }
    }
  });
}

}  // namespace troupe::cpu::TROUPE_ISA
