// Host memory for buffers.
#pragma once

#include <cstddef>

namespace troupe::cpu {

/// Aligned to 64 bytes; from 2 MiB on in huge pages where the kernel has them. Throws
/// std::bad_alloc.
std::byte* allocate_bytes(std::size_t size_bytes);
void free_bytes(std::byte* data) noexcept;

}  // namespace troupe::cpu
