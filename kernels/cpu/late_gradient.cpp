#include "kernels/functors/late_gradient.hpp"

namespace troupe::cpu::TROUPE_ISA {

void compensate_delay(Stream& /*stream*/, const CompensationArguments& a) {
  const CompensationScalars s = a.scalars;
  const std::int64_t n = a.g.elements();
  const float* from = a.g.data<float>();
  const float* now = a.w.data<float>();
  const float* then = a.w_read.data<float>();
  float* kept = a.mean_square ? a.mean_square.data<float>() : nullptr;
  float* to = a.out.data<float>();
  with_compensation(a.kind, [&](auto op) {
#pragma GCC ivdep  // out may be g, but never a shifted one
    for (std::int64_t i = 0; i < n; ++i) {
      if constexpr (op.averages) {
        to[i] = op.correct(s, from[i], now[i] - then[i], kept[i]);
      } else {
        float none = 0;
        to[i] = op.correct(s, from[i], now[i] - then[i], none);
      }
    }
  });
}

void damp_by_gap(Stream& /*stream*/,
                 float reach,
                 const Tensor& g,
                 const Tensor& w,
                 const Tensor& w_read,
                 const Tensor& out) {
  const std::int64_t n = g.elements();
  const float* from = g.data<float>();
  const float* now = w.data<float>();
  const float* then = w_read.data<float>();
  float* to = out.data<float>();
#pragma GCC ivdep  // out may be g, but never a shifted one
  for (std::int64_t i = 0; i < n; ++i) {
    to[i] = damped(from[i], now[i] - then[i], reach);
  }
}

void damp_by_own_steps(Stream& /*stream*/, const OwnStepArguments& a) {
  const OwnStepScalars s = a.scalars;
  const std::int64_t n = a.g.elements();
  const float* from = a.g.data<float>();
  const float* now = a.w.data<float>();
  const float* aimed = a.aim.data<float>();
  const float* then = a.w_read.data<float>();
  const float* squares = a.square.data<float>();
  float* to = a.out.data<float>();
#pragma GCC ivdep  // out may be g, but never a shifted one
  for (std::int64_t i = 0; i < n; ++i) {
    to[i] = damped_by_own_step(s, from[i], now[i], aimed[i] - then[i], squares[i]);
  }
}

void average_square_step(Stream& /*stream*/,
                         float decay,
                         float scale,
                         const Tensor& before,
                         const Tensor& after,
                         const Tensor& square) {
  const std::int64_t n = before.elements();
  const float* from = before.data<float>();
  const float* to = after.data<float>();
  float* squares = square.data<float>();
  for (std::int64_t i = 0; i < n; ++i) {
    squares[i] = averaged_square(decay, squares[i], scale * (from[i] - to[i]));
  }
}

void divide_by_deviation(Stream& /*stream*/, const DeviationArguments& a) {
  const DeviationScalars s = a.scalars;
  const std::int64_t n = a.g.elements();
  const float* from = a.g.data<float>();
  float* squares = a.square.data<float>();
  float* means = a.mean.data<float>();
  float* deviations = a.deviation.data<float>();
  float* to = a.out.data<float>();
#pragma GCC ivdep  // out may be g, but never a shifted one
  for (std::int64_t i = 0; i < n; ++i) {
    to[i] = by_deviation(s, from[i], squares[i], means[i], deviations[i]);
  }
}

}  // namespace troupe::cpu::TROUPE_ISA
