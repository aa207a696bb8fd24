// The mean of vectors that lie on several GPUs, one each: what replicas make of their gradients in an all-reduce. The GPUs
// are of this process, or of several processes, also of other hosts. NVIDIA's NCCL carries and adds them.
#pragma once

#include "kernels/stream.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

/// The ranks of a group that lie in this process.
struct GroupRanks {
  std::vector<std::int32_t> ranks;  // ascending
  std::vector<Device> devices;      // of each of them
  std::int32_t of =
      0;  // ranks of the whole group; more than lie here: the others are in other processes
  std::string id{};  // where others are: what all of them call the group (make_group_id)
};

/// All ranks of a group that lies in this process.
GroupRanks all_here(const std::vector<Device>& devices);

/// Error (usage) with what is wrong, or missing, where group_mean() cannot work between `devices`. They have to be GPUs that
/// are available, and NCCL has to be there, which is loaded. Of a group in one process they are two or more, each named
/// once; `several_processes`: whether two that are called the same are one is not known here, and NCCL looks itself.
Result<void> check_group(const std::vector<Device>& devices, bool several_processes = false);

/// "2.28.9"; empty in a build without NCCL, and where it cannot be loaded.
std::string nccl_version();

/// Of what make_group_id() returns.
inline constexpr std::size_t kGroupIdBytes = 128;

/// A new name for a group with ranks in several processes, which one process makes and tells the others. NCCL writes into it
/// at which address of this process the ranks find each other. Takes some milliseconds. Throws CudaError.
std::string make_group_id();

/// The mean over the ranks, by rank that lies here and slice, the one of rank here.ranks[i] on here.devices[i]. `parts`: by
/// rank that lies here and slice, float32; slice s has the shape (n_s) at every rank. A part on another device is copied
/// first. Parts are only read.
///
/// All ranks get the same bits, because each element is added up and divided at one of them, and copied to the others. In
/// which order the ranks' elements are added is NCCL's choice, so that the bits may differ from machine to machine, and from
/// those of replicas that send each other messages.
///
/// In one process: enqueued; each mean is ready() when it has been made, and what `stream` does later comes after all of
/// them. `stream` is on any of the devices. From several threads at once: all that a process asks for goes to the GPUs in
/// one order, so that no two of them wait for each other. Throws CudaError; whatever was under way between these GPUs has
/// then been given up.
///
/// In several: returns when the means have been made, for which every other process has to call, too; two groups that have
/// a GPU in common are used one after the other, in the same order by all. Throws std::runtime_error where end_group() has
/// been called, and CudaError where NCCL fails. Of a process that has died NCCL may notice nothing: whoever learns of it
/// calls end_group().
///
/// The first call for a group takes seconds, and what it makes is kept until the process, or the group, ends.
std::vector<std::vector<Tensor>> group_mean(Stream& stream,
                                            const GroupRanks& here,
                                            const std::vector<std::vector<Tensor>>& parts);

/// Ends what is under way in the group of this name, which has ranks in other processes, for good: calls that wait for them
/// throw soon, and so does each later one. From any thread.
void end_group(const std::string& id);

// The backend: same signatures, arguments already checked.
namespace cuda {
std::string make_group_id();
std::vector<std::vector<Tensor>> group_mean(Stream& stream,
                                            const GroupRanks& here,
                                            const std::vector<std::vector<Tensor>>& parts);
void end_group(const std::string& id);
}  // namespace cuda

}  // namespace troupe
