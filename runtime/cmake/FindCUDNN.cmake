# cuDNN 9, beside CUDA or where CUDNN_INCLUDE_DIR and CUDNN_LIBRARY say; after find_package(CUDAToolkit).
# Defines CUDNN::cudnn.
find_path(CUDNN_INCLUDE_DIR cudnn_version.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
if(CUDNN_INCLUDE_DIR)
  file(STRINGS ${CUDNN_INCLUDE_DIR}/cudnn_version.h CUDNN_IS_9 REGEX "define CUDNN_MAJOR 9$")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CUDNN REQUIRED_VARS CUDNN_LIBRARY CUDNN_INCLUDE_DIR CUDNN_IS_9
  REASON_FAILURE_MESSAGE "install cuDNN 9 beside CUDA, or give -DCUDNN_INCLUDE_DIR=... -DCUDNN_LIBRARY=...")
if(CUDNN_FOUND AND NOT TARGET CUDNN::cudnn)
  add_library(CUDNN::cudnn UNKNOWN IMPORTED)
  set_target_properties(CUDNN::cudnn PROPERTIES IMPORTED_LOCATION "${CUDNN_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${CUDNN_INCLUDE_DIR}")
endif()
