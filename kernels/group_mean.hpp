// The mean of vectors that lie on several GPUs of this process, one each: what replicas make of their gradients in
// an all-reduce. NVIDIA's NCCL carries and adds them.
#pragma once

#include "kernels/stream.hpp"

#include <string>
#include <vector>

namespace troupe {

/// Error (usage) with what is wrong, or missing, where group_mean() cannot work between `devices`. They have to be
/// two or more GPUs, each named once, that are available; and NCCL has to be there, which is loaded.
Result<void> check_group(const std::vector<Device>& devices);

/// "2.28.9"; empty in a build without NCCL, and where it cannot be loaded.
std::string nccl_version();

/// The mean over the ranks, by rank and slice, the one of rank r on devices[r]. `parts`: by rank and slice, float32;
/// slice s has the shape (n_s) at every rank. A part on another device is copied first. Parts are only read.
///
/// All ranks get the same bits, because each element is added up and divided at one of them, and copied to the others. In
/// which order the ranks' elements are added is NCCL's choice, so that the bits may differ from machine to machine, and from
/// those of replicas that send each other messages.
///
/// Enqueued: what `stream` does later comes after it. `stream` is on any of the devices. From several threads at once:
/// all that a process asks for goes to the GPUs in one order, so that no two of them wait for each other. The first
/// call for a list of devices takes seconds, and what it makes is kept until the process ends. Throws CudaError; whatever
/// was under way between these GPUs has then been given up.
std::vector<std::vector<Tensor>> group_mean(Stream& stream,
                                            const std::vector<Device>& devices,
                                            const std::vector<std::vector<Tensor>>& parts);

// The backend: same signature, arguments already checked.
namespace cuda {
std::vector<std::vector<Tensor>> group_mean(Stream& stream,
                                            const std::vector<Device>& devices,
                                            const std::vector<std::vector<Tensor>>& parts);
}  // namespace cuda

}  // namespace troupe
