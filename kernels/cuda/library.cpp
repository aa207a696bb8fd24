#include "kernels/cuda/library.hpp"

#include <dlfcn.h>

#include <stdexcept>
#include <string>

#define TROUPE_STRING_OF(value) #value
#define TROUPE_STRING(macro) TROUPE_STRING_OF(macro)

namespace troupe::cuda {

Library::Library(const char* name, const char* directory)
    : name_(name), handle_(::dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
  if (!handle_) {
    handle_ = ::dlopen((std::string(directory) + "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL);
  }
}

void* Library::find(const char* symbol) const {
  if (!handle_) {
    throw std::runtime_error(
        std::string(name_) +
        " cannot be loaded: install it, or name its folder in LD_LIBRARY_PATH");
  }
  if (void* found = ::dlsym(handle_, symbol)) {
    return found;
  }
  throw std::runtime_error(std::string(name_) + " has no " + symbol + ": it is of another version");
}

const Library& cublas_lt() {
  static const Library library("libcublasLt.so." TROUPE_STRING(CUBLAS_VER_MAJOR),
                               TROUPE_CUDA_DIRECTORY);
  return library;
}

#ifdef TROUPE_NCCL_DIRECTORY
const Library& nccl() {
  static const Library library("libnccl.so." TROUPE_STRING(NCCL_MAJOR), TROUPE_NCCL_DIRECTORY);
  return library;
}
#endif

#ifdef TROUPE_CUDNN_DIRECTORY
const Library& cudnn() {
  static const Library library("libcudnn.so." TROUPE_STRING(CUDNN_MAJOR), TROUPE_CUDNN_DIRECTORY);
  return library;
}
#endif

}  // namespace troupe::cuda
