// The codecs that come with Troupe, one file each or a family. Private to runtime/schemes.
#pragma once

#include "runtime/schemes/codecs/codec.hpp"

#include <vector>

namespace troupe::codec_schemes {

/// As runtime/CMakeLists.txt lists them: each has a function of its name in this namespace.
std::vector<CodecScheme> built_in();

}  // namespace troupe::codec_schemes
