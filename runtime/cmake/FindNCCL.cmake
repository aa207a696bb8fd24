# NCCL 2.14 or newer, beside CUDA or where NCCL_INCLUDE_DIR and NCCL_LIBRARY say; after find_package(CUDAToolkit). It is loaded when it
# is first called (kernels/cuda/library.hpp), so that nothing is linked.
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
if(NCCL_INCLUDE_DIR)
  file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h NCCL_IS_2 REGEX "define NCCL_MAJOR 2$")
  file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h NCCL_IS_14 REGEX "define NCCL_MINOR (1[4-9]|[2-9][0-9])$")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR NCCL_IS_2 NCCL_IS_14
  REASON_FAILURE_MESSAGE "install NCCL 2.14 or newer beside CUDA, or give -DNCCL_INCLUDE_DIR=... -DNCCL_LIBRARY=...")
