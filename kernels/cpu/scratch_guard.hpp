// Finds out what oneDNN's code writes beside its scratchpad. No sanitizer sees that code, because oneDNN compiles it when
// the program runs. So builds with the address sanitizer put a pattern before and behind each scratchpad, and look at it
// after each run. In other builds the guards have no bytes, and nothing here costs anything.
#pragma once

#include "kernels/check.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string>

namespace troupe::cpu {

#ifdef TROUPE_GUARD_SCRATCH
inline constexpr std::size_t kGuardBytes = 4096;
#else
inline constexpr std::size_t kGuardBytes = 0;
#endif

/// The guards of one run: before the scratchpad, behind it, and behind the scratch that follows it.
class ScratchGuards {
 public:
  /// Each address has kGuardBytes of the caller's memory, which the guards fill.
  void place(const std::array<std::byte*, 3>& starts) {
    starts_ = starts;
    for (std::byte* start : starts_) {
      std::fill_n(start, kGuardBytes, kPattern);
    }
  }

  /// Throws ContractError where the pattern has changed; `who` ran.
  void check(const std::string& who) const {
    for (const std::byte* start : starts_) {
      // The first byte is the pattern, and each is as the one before: memcmp is fast in every build.
      const bool untouched =
          kGuardBytes == 0 ||
          (*start == kPattern && std::memcmp(start, start + 1, kGuardBytes - 1) == 0);
      TROUPE_CHECK(untouched, who, " wrote beside its scratch memory");
    }
  }

 private:
  static constexpr std::byte kPattern{0x5c};
  std::array<std::byte*, 3> starts_{};
};

}  // namespace troupe::cpu
