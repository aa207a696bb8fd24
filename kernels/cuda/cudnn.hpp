// cuDNN's errors, for TROUPE_CUDA_CHECK. Only files that are compiled where cuDNN was found include
// this.
#pragma once

#include "kernels/cuda/check.hpp"

#include <array>
#include <source_location>
#include <string>

namespace troupe::cuda {

inline void check(const char* expression,
                  cudnnStatus_t code,
                  std::source_location where = std::source_location::current()) {
  if (code != CUDNN_STATUS_SUCCESS) [[unlikely]] {
    std::array<char, 512> detail{};
    cudnnGetLastErrorString(detail.data(), detail.size());
    throw CudaError(
        expression, std::string(cudnnGetErrorString(code)) + " (" + detail.data() + ")", where);
  }
}

}  // namespace troupe::cuda
