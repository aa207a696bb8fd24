// What an update of Hogwild does to the shared buffer, whatever the optimizer that made it.
#pragma once

#include "kernels/shared_buffer.hpp"

namespace troupe {

/// buffer += to - from, component by component, and one update of `writer`. A component that still
/// is what `from` has becomes what `to` has, to the last bit, so that a lone writer loses nothing to
/// rounding. Shapes: from, to (n), CPU; where they are equal nothing is touched. Returns updates() as
/// it was just before its own was counted.
std::uint64_t shared_move(Stream& stream,
                          SharedBuffer& buffer,
                          int writer,
                          const Tensor& from,
                          const Tensor& to,
                          SharedAdd how);

namespace cpu {
void shared_move(SharedBuffer& buffer, const float* from, const float* to, SharedAdd how);
}  // namespace cpu

}  // namespace troupe
