#include "apps/cli/version.hpp"

namespace troupe {

const char* version() {
  return TROUPE_VERSION;
}

const char* onednn_version() {
  return TROUPE_ONEDNN_VERSION;
}

bool built_with_cuda() {
  return TROUPE_WITH_CUDA;
}

}  // namespace troupe
