#include "kernels/codes.hpp"

#include "kernels/dispatch.hpp"

namespace troupe::codes {

void draw(const RandomStream& random, std::int64_t first, std::uint32_t* out, std::int64_t n) {
  TROUPE_CPU(draw)(random, first, out, n);
}

}  // namespace troupe::codes
