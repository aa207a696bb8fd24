// Reads the text that an OrderLog has written.
#pragma once

#include "kernels/result.hpp"
#include "runtime/system/replay.hpp"

#include <filesystem>
#include <vector>

namespace troupe {

/// The deliveries of thread `thread` of the cast. The file is not believed: Error (data), "FILE:LINE: ..." where
/// something in it cannot be what that thread has written, or where it is not whole.
Result<std::vector<Delivery>> read_order(const std::filesystem::path& path,
                                         const Cast& cast,
                                         int thread);

}  // namespace troupe
