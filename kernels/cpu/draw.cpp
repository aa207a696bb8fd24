#include "kernels/codes.hpp"

namespace troupe::cpu::TROUPE_ISA {

void draw(const RandomStream& random, std::int64_t first, std::uint32_t* out, std::int64_t n) {
  const RandomStream stream = random;
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = static_cast<std::uint32_t>(stream.bits(static_cast<std::uint64_t>(first + i)) >> 32);
  }
}

}  // namespace troupe::cpu::TROUPE_ISA
