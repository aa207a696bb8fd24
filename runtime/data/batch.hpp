// Samples as the tensors that travel through the network.
#pragma once

#include "kernels/stream.hpp"
#include "kernels/tensor.hpp"
#include "runtime/data/dataset.hpp"

#include <cstdint>
#include <span>

namespace troupe {

struct Batch {
  Tensor x;       // (B, sample shape), float32 or int32 as Dataset::input_type says
  Tensor target;  // labels int32 (B), or (B, T) where a sample has T of them; or values (B, values)
};

/// The samples `indices`, on the stream's device: on a GPU the last of the upload has been enqueued. `epoch` as in
/// Dataset::gather.
Batch gather_batch(Stream& stream,
                   const Dataset& data,
                   Split split,
                   std::span<const std::int64_t> indices,
                   std::int64_t epoch);

}  // namespace troupe
