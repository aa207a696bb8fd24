// Short names of the vectors that the coordinator's commands speak of (messages/sandblaster.hpp).
#pragma once

#include "messages/sandblaster.hpp"

#include <cstdint>

namespace troupe::vectors {

constexpr VectorName kWeights{.kind = VectorKind::weights};
constexpr VectorName kPoint{.kind = VectorKind::point};
constexpr VectorName kGradient{.kind = VectorKind::gradient};
constexpr VectorName kSum{.kind = VectorKind::sum};
constexpr VectorName kDirection{.kind = VectorKind::direction};

/// s of the pair in `slot`.
constexpr VectorName step_of(std::int64_t slot) {
  return {VectorKind::step, slot};
}

/// y of the pair in `slot`.
constexpr VectorName change_of(std::int64_t slot) {
  return {VectorKind::change, slot};
}

}  // namespace troupe::vectors
