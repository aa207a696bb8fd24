// Which processes of a test have something to say to each other.
#pragma once

#include <cstddef>
#include <vector>

namespace troupe::test {

/// Nobody talks with anybody but the lead.
inline std::vector<std::vector<bool>> with_the_lead(int processes) {
  const auto all = static_cast<std::size_t>(processes);
  std::vector<std::vector<bool>> partners(all, std::vector<bool>(all, false));
  for (std::size_t p = 1; p < all; ++p) {
    partners[0][p] = partners[p][0] = true;
  }
  return partners;
}

}  // namespace troupe::test
