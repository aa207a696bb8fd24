// The decoupled methods that Troupe comes with, one file each, named after them.
#pragma once

#include "runtime/schemes/decoupled/decoupled.hpp"

#include <vector>

namespace troupe::decoupled {

/// As runtime/CMakeLists.txt lists them: each has a function of its name in this namespace.
std::vector<DecoupledScheme> built_in();

}  // namespace troupe::decoupled
