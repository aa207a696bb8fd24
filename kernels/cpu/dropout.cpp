#include "kernels/dropout.hpp"

#include "kernels/functors/dropout.hpp"

namespace troupe::cpu::TROUPE_ISA {

void dropout(Stream& /*stream*/,
             const RandomStream& random,
             std::uint64_t first,
             float rate,
             const Tensor& x,
             const Tensor& y) {
  const Dropout op(random, rate);
  const float* from = x.data<float>();
  float* to = y.data<float>();
  const auto n = static_cast<std::uint64_t>(x.elements());
#pragma GCC ivdep  // `to` may be `from`, but never a shifted one
  for (std::uint64_t i = 0; i < n; ++i) {
    to[i] = op.apply(first + i, from[i]);
  }
}

}  // namespace troupe::cpu::TROUPE_ISA
