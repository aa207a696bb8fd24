// Skipping: Catch2 v2 has no SKIP, so a test that lacks what it needs says so here and main() exits
// with ctest's SKIP_RETURN_CODE, unless another test case of the same binary failed.
#pragma once

#include "kernels/device.hpp"

#include <string>

namespace troupe::test {

constexpr Device kGpu{DeviceKind::cuda, 0};

/// Whether there is a GPU that kernels can run on.
inline bool gpu() {
  return static_cast<bool>(check_available(kGpu));
}

/// Whether the CPU plays the GPU (tests/kernels/device_on_cpu): all of it is late there as it is, and slow.
inline bool emulated() {
  for (const DeviceInfo& info : devices()) {
    if (info.device == kGpu) {
      return info.name == "device on cpu";
    }
  }
  return false;
}

/// Use as `if (!gpu) return skip("no GPU");` in a test case.
void skip(const std::string& reason);

/// Whether any test case has called skip().
bool skipped();

}  // namespace troupe::test
