// What sums between GPUs of one process (group_mean.cpp) and of several (far_group.cpp) share of NCCL. Private to this folder.
#pragma once

#include "kernels/cuda/library.hpp"
#include "kernels/cuda/state.hpp"

#include <cstdint>
#include <source_location>
#include <string>

namespace troupe::cuda {

inline void check_nccl(const char* expression,
                       ncclResult_t code,
                       ncclComm_t communicator = nullptr,
                       std::source_location where = std::source_location::current()) {
  // In progress: of a communicator that does not block, which tells later what has come of it.
  if (code != ncclSuccess && code != ncclInProgress) [[unlikely]] {
    throw CudaError(expression,
                    std::string(ncclGetErrorString(code)) + " (" + ncclGetLastError(communicator) +
                        "; NCCL_DEBUG=WARN tells more)",
                    where);
  }
}

#define TROUPE_NCCL_CHECK(expression) check_nccl(#expression, (expression))

/// A rank that lies in this process.
struct GroupRank {
  std::int32_t number;
  ncclComm_t communicator;
  Stream* stream;
};

/// What `calls` asks NCCL for goes to all GPUs as one.
template <class F>
void together(F calls) {
  TROUPE_NCCL_CHECK(ncclGroupStart());
  try {
    calls();
  } catch (...) {
    static_cast<void>(ncclGroupEnd());
    throw;
  }
  TROUPE_NCCL_CHECK(ncclGroupEnd());
}

}  // namespace troupe::cuda
