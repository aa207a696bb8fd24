#include "kernels/group_mean.hpp"

#include "kernels/cuda/backend.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

namespace troupe {
namespace {

/// "cuda:0, cuda:1".
std::string listed(const std::vector<Device>& devices) {
  return joined(devices, ", ", [&](const Device device) { return to_string(device); });
}

bool all_apart(const std::vector<Device>& devices) {
  return std::set<Device>(devices.begin(), devices.end()).size() == devices.size();
}

bool all_gpus(const std::vector<Device>& devices) {
  return std::ranges::all_of(devices,
                             [](Device device) { return device.kind == DeviceKind::cuda; });
}

}  // namespace

GroupRanks all_here(const std::vector<Device>& devices) {
  GroupRanks here{.ranks = std::vector<std::int32_t>(devices.size()),
                  .devices = devices,
                  .of = static_cast<std::int32_t>(devices.size())};
  std::iota(here.ranks.begin(), here.ranks.end(), 0);
  return here;
}

Result<void> check_group(const std::vector<Device>& devices, bool several_processes) {
  if (several_processes ? !all_gpus(devices)
                        : devices.size() < 2 || !all_gpus(devices) || !all_apart(devices)) {
    return usage_error("NCCL adds up between {}; here it would be between {}",
                       several_processes ? "GPUs" : "two or more GPUs, each named once",
                       listed(devices));
  }
  for (const Device device : devices) {
    TROUPE_TRY(check_available(device));
  }
  if (nccl_version().empty()) {
    return Error{ErrorKind::usage,
                 "NCCL is not there: this build was made without it, or libnccl.so.2 cannot be "
                 "loaded (LD_LIBRARY_PATH may name its folder)"};
  }
  return {};
}

std::string nccl_version() {
  if constexpr (kNccl.is_here) {
    return cuda::nccl_version();
  }
  return "";
}

std::string make_group_id() {
  if constexpr (kNccl.is_here) {
    return cuda::make_group_id();
  }
  fail_without(kNccl, "make_group_id");
}

std::vector<std::vector<Tensor>> group_mean(Stream& stream,
                                            const GroupRanks& here,
                                            const std::vector<std::vector<Tensor>>& parts) {
  const std::vector<Device>& devices = here.devices;
  const auto count = static_cast<std::int32_t>(here.ranks.size());
  TROUPE_CHECK(here.of >= 2 && count >= 1 && all_gpus(devices) && all_apart(devices),
               "[group_mean] expected two or more GPUs, each named once; there are ",
               listed(devices));
  TROUPE_CHECK(count <= here.of && devices.size() == here.ranks.size() && here.ranks.front() >= 0 &&
                   here.ranks.back() < here.of &&
                   std::ranges::adjacent_find(here.ranks, std::greater_equal()) == here.ranks.end(),
               "[group_mean] expected ranks of the group in their order, and a device for each");
  TROUPE_CHECK(count == here.of || here.id.size() == kGroupIdBytes,
               fill_in("[group_mean] a group of several processes needs a name of {} bytes, not {}",
                       kGroupIdBytes,
                       here.id.size()));
  TROUPE_CHECK(std::find(devices.begin(), devices.end(), stream.device()) != devices.end(),
               fill_in("[group_mean] the stream is on {}, which is none of {}",
                       to_string(stream.device()),
                       listed(devices)));
  TROUPE_CHECK(
      parts.size() == devices.size(),
      fill_in("[group_mean] parts of {} ranks on {} devices", parts.size(), devices.size()));
  for (const std::vector<Tensor>& of_rank : parts) {
    TROUPE_CHECK(of_rank.size() == parts.front().size(), "[group_mean] ranks of different slices");
    for (std::size_t s = 0; s < of_rank.size(); ++s) {
      const Tensor& part = of_rank[s];
      TROUPE_CHECK(
          part && part.type() == DType::float32 && part.shape().dimensions() == 1 &&
              part.shape() == parts.front()[s].shape(),
          fill_in("[group_mean] slice {} has to be float32 and of one shape (n) at all ranks", s));
    }
  }
  if constexpr (kNccl.is_here) {
    return cuda::group_mean(stream, here, parts);
  }
  fail_without(kNccl, "group_mean");
}

void end_group(const std::string& id) {
  if constexpr (kNccl.is_here) {
    cuda::end_group(id);
  }
}

}  // namespace troupe
