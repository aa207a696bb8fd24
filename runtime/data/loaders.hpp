// Work on the samples of a data set by several threads.
#pragma once

#include "kernels/result.hpp"

#include <cstddef>
#include <functional>

namespace troupe {

/// Calls `work` for each of 0 .. count - 1, on `threads` threads (0: one a core; never more than `count`), the
/// caller's among them; returns when all are done. Error: the one of the smallest index; those after it may not have been
/// tried. An exception ends the work, too, and is thrown here.
Result<void> load_all(std::size_t count,
                      std::size_t threads,
                      const std::function<Result<void>(std::size_t)>& work);

}  // namespace troupe
