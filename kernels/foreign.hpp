// Work that other libraries, as PyTorch, put on a GPU's stream of ours, in one order with the kernels.
#pragma once

#include "kernels/stream.hpp"

namespace troupe {

/// The cudaStream_t of a GPU's stream, null on the CPU. It belongs to the stream.
void* native_handle(Stream& stream);

/// Work that others put on native_handle() from now on may use `x`: it starts when `x` is ready, and x's memory goes to nobody
/// else before what is on the stream when the last handle of `x` goes has been done. Nothing on the CPU but a wait.
void lend(Stream& stream, const Tensor& x);

/// x = what others have at `data`, as many bytes as `x` has, on the same GPU. Enqueued: the memory must be neither written nor
/// given to others by what is not put behind it on the stream. Throws ContractError for a stream of the CPU.
void copy_foreign(Stream& stream, const void* data, const Tensor& x);

}  // namespace troupe
