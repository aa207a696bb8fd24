// The control groups of Linux that limit this process.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

namespace troupe {

/// Calls `visit(group, unified)` with the folder of each group that this process is in, and of those above them, of
/// `controller` ("memory", "cpu") in version 1 and of all controllers in version 2, which is `unified`. A folder need not be there.
void for_each_group(std::string_view controller,
                    const std::function<void(const std::filesystem::path&, bool unified)>& visit);

}  // namespace troupe
