// Versions, confined to one object file so that a new one rebuilds little.
#pragma once

namespace troupe {

/// "0.2.0"
const char* version();
/// Of the source that was built, "1a2b3c4d5e6f", with "+" where it had been changed since; "unknown" without git.
const char* commit();
/// Of the oneDNN that we were built with.
const char* onednn_version();
/// Whether the CUDA backend is in this build.
bool built_with_cuda();

}  // namespace troupe
