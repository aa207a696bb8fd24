// Means over several GPUs in a CUDA build without NCCL.
#include "kernels/check.hpp"
#include "kernels/cuda/backend.hpp"
#include "kernels/group_mean.hpp"

namespace troupe::cuda {

std::string nccl_version() {
  return "";
}

std::vector<std::vector<Tensor>> group_mean(Stream&,
                                            const std::vector<Device>&,
                                            const std::vector<std::vector<Tensor>>&) {
  throw ContractError(
      "[group_mean] this build has no NCCL; configure where it is installed beside CUDA");
}

}  // namespace troupe::cuda
