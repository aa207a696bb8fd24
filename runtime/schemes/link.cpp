#include "runtime/schemes/link.hpp"

namespace troupe {

bool Link::pushes(std::int64_t n, std::int64_t turn) const {
  if (last > 0 && n == last) {
    return true;
  }
  if (!streams) {
    return n % push_every == 0;
  }
  return n > turn && (n - turn) % push_every == 0;
}

}  // namespace troupe
