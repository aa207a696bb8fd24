#include "apps/cli/version.hpp"

namespace troupe {

const char* version() {
  return TROUPE_VERSION;
}

const char* onednn_version() {
  return TROUPE_ONEDNN_VERSION;
}

const char* cpu_kernel_architecture() {
  return TROUPE_ARCH;
}

bool built_with_cuda() {
  return TROUPE_WITH_CUDA;
}

}  // namespace troupe
