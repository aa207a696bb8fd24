// cuBLASLt, cuDNN and NCCL, loaded when one of their functions is first called. Linked, they would take
// a tenth of a second and 200 MB of every start of a program, most of which touches no GPU; and the
// program would not start where they are not installed.
//
// A name below hides the function that it stands for, so that calls in namespace troupe::cuda read as
// they would without this file.
#pragma once

#include <cublasLt.h>

#ifdef TROUPE_CUDNN_DIRECTORY
#include <cudnn.h>
#endif

#ifdef TROUPE_NCCL_DIRECTORY
#include <nccl.h>
#endif

namespace troupe::cuda {

/// A shared library that stays loaded until the process ends. Safe from several threads at once.
class Library {
 public:
  /// Looks for the file `name` where the system's loader does (LD_LIBRARY_PATH first), then in
  /// `directory`.
  Library(const char* name, const char* directory);

  /// What `symbol` names. Throws std::runtime_error, which names the library and says what is wrong,
  /// where the library cannot be loaded or has no such symbol.
  void* find(const char* symbol) const;

  /// Whether it has been loaded.
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  const char* name_;
  void* handle_;
};

const Library& cublas_lt();

#ifdef TROUPE_CUDNN_DIRECTORY
const Library& cudnn();
#endif

#ifdef TROUPE_NCCL_DIRECTORY
const Library& nccl();
#endif

}  // namespace troupe::cuda

#define TROUPE_LOADED_FUNCTION(library, name)                                                   \
  inline constexpr struct name##_t {                                                            \
    template <class... Arguments>                                                               \
    auto operator()(Arguments... arguments) const {                                             \
      static auto* const function = reinterpret_cast<decltype(&::name)>(library().find(#name)); \
      return function(arguments...);                                                            \
    }                                                                                           \
  } name {                                                                                      \
  }

namespace troupe::cuda {

TROUPE_LOADED_FUNCTION(cublas_lt, cublasLtCreate);
TROUPE_LOADED_FUNCTION(cublas_lt, cublasLtDestroy);
TROUPE_LOADED_FUNCTION(cublas_lt, cublasLtGetStatusName);
TROUPE_LOADED_FUNCTION(cublas_lt, cublasLtGetStatusString);
TROUPE_LOADED_FUNCTION(cublas_lt, cublasLtMatmul);
TROUPE_LOADED_FUNCTION(cublas_lt, cublasLtMatmulAlgoGetHeuristic);
TROUPE_LOADED_FUNCTION(cublas_lt, cublasLtMatmulDescCreate);
TROUPE_LOADED_FUNCTION(cublas_lt, cublasLtMatmulDescDestroy);
TROUPE_LOADED_FUNCTION(cublas_lt, cublasLtMatmulDescSetAttribute);
TROUPE_LOADED_FUNCTION(cublas_lt, cublasLtMatmulPreferenceCreate);
TROUPE_LOADED_FUNCTION(cublas_lt, cublasLtMatmulPreferenceDestroy);
TROUPE_LOADED_FUNCTION(cublas_lt, cublasLtMatmulPreferenceSetAttribute);
TROUPE_LOADED_FUNCTION(cublas_lt, cublasLtMatrixLayoutCreate);
TROUPE_LOADED_FUNCTION(cublas_lt, cublasLtMatrixLayoutDestroy);

#ifdef TROUPE_CUDNN_DIRECTORY
TROUPE_LOADED_FUNCTION(cudnn, cudnnConvolutionBackwardData);
TROUPE_LOADED_FUNCTION(cudnn, cudnnConvolutionBackwardFilter);
TROUPE_LOADED_FUNCTION(cudnn, cudnnConvolutionForward);
TROUPE_LOADED_FUNCTION(cudnn, cudnnCreate);
TROUPE_LOADED_FUNCTION(cudnn, cudnnCreateConvolutionDescriptor);
TROUPE_LOADED_FUNCTION(cudnn, cudnnCreateFilterDescriptor);
TROUPE_LOADED_FUNCTION(cudnn, cudnnCreateTensorDescriptor);
TROUPE_LOADED_FUNCTION(cudnn, cudnnDestroy);
TROUPE_LOADED_FUNCTION(cudnn, cudnnDestroyConvolutionDescriptor);
TROUPE_LOADED_FUNCTION(cudnn, cudnnDestroyFilterDescriptor);
TROUPE_LOADED_FUNCTION(cudnn, cudnnDestroyTensorDescriptor);
TROUPE_LOADED_FUNCTION(cudnn, cudnnGetConvolutionBackwardDataAlgorithm_v7);
TROUPE_LOADED_FUNCTION(cudnn, cudnnGetConvolutionBackwardFilterAlgorithm_v7);
TROUPE_LOADED_FUNCTION(cudnn, cudnnGetConvolutionForwardAlgorithm_v7);
TROUPE_LOADED_FUNCTION(cudnn, cudnnGetErrorString);
TROUPE_LOADED_FUNCTION(cudnn, cudnnGetLastErrorString);
TROUPE_LOADED_FUNCTION(cudnn, cudnnGetVersion);
TROUPE_LOADED_FUNCTION(cudnn, cudnnSetConvolution2dDescriptor);
TROUPE_LOADED_FUNCTION(cudnn, cudnnSetConvolutionMathType);
TROUPE_LOADED_FUNCTION(cudnn, cudnnSetFilter4dDescriptor);
TROUPE_LOADED_FUNCTION(cudnn, cudnnSetStream);
TROUPE_LOADED_FUNCTION(cudnn, cudnnSetTensor4dDescriptor);
#endif

#ifdef TROUPE_NCCL_DIRECTORY
TROUPE_LOADED_FUNCTION(nccl, ncclAllGather);
TROUPE_LOADED_FUNCTION(nccl, ncclCommAbort);
TROUPE_LOADED_FUNCTION(nccl, ncclCommGetAsyncError);
TROUPE_LOADED_FUNCTION(nccl, ncclCommInitAll);
TROUPE_LOADED_FUNCTION(nccl, ncclCommInitRankConfig);
TROUPE_LOADED_FUNCTION(nccl, ncclGetErrorString);
TROUPE_LOADED_FUNCTION(nccl, ncclGetLastError);
TROUPE_LOADED_FUNCTION(nccl, ncclGetUniqueId);
TROUPE_LOADED_FUNCTION(nccl, ncclGetVersion);
TROUPE_LOADED_FUNCTION(nccl, ncclGroupEnd);
TROUPE_LOADED_FUNCTION(nccl, ncclGroupStart);
TROUPE_LOADED_FUNCTION(nccl, ncclReduceScatter);
#endif

}  // namespace troupe::cuda

#undef TROUPE_LOADED_FUNCTION
