// Errors of CUDA and its libraries. TROUPE_CUDA_CHECK(call) throws CudaError with the expression,
// where it stands and what CUDA says. Destructors and other noexcept functions use succeeded()
// instead.
#pragma once

#include "kernels/cuda/library.hpp"

#include <cuda_runtime_api.h>

#include <source_location>
#include <stdexcept>
#include <string>

namespace troupe {

/// A call of CUDA or one of its libraries failed. The context may be unusable afterwards (sticky
/// errors): whoever owns the device is torn down, not tried again.
class CudaError : public std::runtime_error {
 public:
  CudaError(const char* expression, const std::string& what, std::source_location where)
      : std::runtime_error(std::string(where.file_name()) + ":" + std::to_string(where.line()) +
                           ": " + expression + ": " + what) {}
};

namespace cuda {

/// For places that must not throw. The error is forgotten, so that no later check takes it for its
/// own.
inline bool succeeded(cudaError_t code) noexcept {
  if (code == cudaSuccess) [[likely]] {
    return true;
  }
  static_cast<void>(cudaGetLastError());
  return false;
}

inline bool succeeded(cublasStatus_t code) noexcept {
  return code == CUBLAS_STATUS_SUCCESS;
}

inline std::string describe(cudaError_t code) {
  return std::string(cudaGetErrorName(code)) + " (" + cudaGetErrorString(code) + ")";
}

inline std::string describe(cublasStatus_t code) {
  return std::string(cublasLtGetStatusName(code)) + " (" + cublasLtGetStatusString(code) + ")";
}

template <class Code>
void check(const char* expression,
           Code code,
           std::source_location where = std::source_location::current()) {
  if (!succeeded(code)) [[unlikely]] {
    throw CudaError(expression, describe(code), where);
  }
}

}  // namespace cuda
}  // namespace troupe

#define TROUPE_CUDA_CHECK(expression) ::troupe::cuda::check(#expression, (expression))
