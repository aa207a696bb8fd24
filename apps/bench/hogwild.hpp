// Sparse Hogwild on two threads against one, and against what it does without: locks.
#pragma once

#include "apps/bench/measure.hpp"

namespace troupe {

Rows hogwild(double seconds);

}  // namespace troupe
