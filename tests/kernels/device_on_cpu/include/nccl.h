// A stand-in: what kernels/cuda/ uses of NCCL. Names and values are NVIDIA's.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#define NCCL_MAJOR on_cpu

enum ncclResult_t {
  ncclSuccess = 0,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
};

enum ncclDataType_t { ncclFloat32 = 7 };

enum ncclRedOp_t { ncclSum = 0 };

struct ncclUniqueId {
  char internal[128];
};

struct ncclConfig_t {
  int blocking;
};

#define NCCL_CONFIG_INITIALIZER \
  { 1 }

struct ncclComm;
using ncclComm_t = ncclComm*;

extern "C" {
ncclResult_t ncclGetVersion(int* version);
const char* ncclGetErrorString(ncclResult_t code);
const char* ncclGetLastError(ncclComm_t communicator);
ncclResult_t ncclCommInitAll(ncclComm_t* communicators, int count, const int* devices);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRankConfig(
    ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* state);
ncclResult_t ncclCommAbort(ncclComm_t communicator);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclReduceScatter(const void* from,
                               void* to,
                               std::size_t count,
                               ncclDataType_t type,
                               ncclRedOp_t operation,
                               ncclComm_t communicator,
                               cudaStream_t stream);
ncclResult_t ncclAllGather(const void* from,
                           void* to,
                           std::size_t count,
                           ncclDataType_t type,
                           ncclComm_t communicator,
                           cudaStream_t stream);
}
