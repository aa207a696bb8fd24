#include "runtime/schemes/link.hpp"

namespace troupe {

bool Link::pushes(std::int64_t n, std::size_t slice, std::size_t slices) const {
  if (last > 0 && n == last) {
    return true;
  }
  if (!streams) {
    return n % push_every == 0;
  }
  // The fragments take turns within a period.
  const std::int64_t turn =
      push_every * static_cast<std::int64_t>(slice) / static_cast<std::int64_t>(slices);
  return n > turn && (n - turn) % push_every == 0;
}

}  // namespace troupe
