// A tensor's elements as bytes.
#pragma once

#include "kernels/tensor.hpp"

#include <cstddef>
#include <span>

namespace troupe {

/// All elements, row-major, where they lie: of a tensor on a GPU they are an address only. The tensor holds
/// something and outlives them.
std::span<std::byte> bytes_of(const Tensor& tensor);

}  // namespace troupe
