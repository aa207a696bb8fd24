#include "kernels/convert.hpp"

namespace troupe::cpu::TROUPE_ISA {

void round_to_bfloat16(const float* from, std::int64_t n, BFloat16* to) {
  for (std::int64_t i = 0; i < n; ++i) {
    to[i] = to_bfloat16(from[i]);
  }
}

void convert(Stream& /*stream*/, const Tensor& x, const Tensor& y) {
  const std::int64_t n = x.elements();
  if (x.type() == DType::float32) {
    round_to_bfloat16(x.data<float>(), n, y.data<BFloat16>());
    return;
  }
  const BFloat16* from = x.data<BFloat16>();
  float* to = y.data<float>();
  for (std::int64_t i = 0; i < n; ++i) {
    to[i] = to_float(from[i]);
  }
}

}  // namespace troupe::cpu::TROUPE_ISA
