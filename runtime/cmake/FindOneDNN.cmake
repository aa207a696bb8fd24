# oneDNN by header and library. Debian's own config wants OpenCL headers that we do not use.
# Defines OneDNN::dnnl, which brings GNU's OpenMP runtime: it is what oneDNN runs on, whatever compiler compiles us, and each
# thread tells it to use one thread.
find_path(OneDNN_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
find_library(OneDNN_LIBRARY dnnl)
find_library(OneDNN_OPENMP_LIBRARY NAMES gomp libgomp.so.1)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OneDNN REQUIRED_VARS OneDNN_LIBRARY OneDNN_INCLUDE_DIR OneDNN_OPENMP_LIBRARY
  REASON_FAILURE_MESSAGE "install libdnnl-dev")
if(OneDNN_FOUND AND NOT TARGET OneDNN::dnnl)
  add_library(OneDNN::dnnl UNKNOWN IMPORTED)
  set_target_properties(OneDNN::dnnl PROPERTIES IMPORTED_LOCATION "${OneDNN_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${OneDNN_INCLUDE_DIR}" INTERFACE_LINK_LIBRARIES "${OneDNN_OPENMP_LIBRARY}")
endif()
