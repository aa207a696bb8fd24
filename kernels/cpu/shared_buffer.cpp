#include "kernels/shared_buffer.hpp"

namespace troupe::cpu::TROUPE_ISA {

void shared_move(
    const float* values, const float* from, const float* to, float* now, std::int64_t n) {
#pragma GCC ivdep  // now may be to, but never a shifted one
  for (std::int64_t i = 0; i < n; ++i) {
    const float seen = values[i];
    const float moved = seen == from[i] ? to[i] : seen + (to[i] - from[i]);
    now[i] = from[i] == to[i] ? seen : moved;
  }
}

}  // namespace troupe::cpu::TROUPE_ISA
