// Files out of a tar archive, plain or gzip's (POSIX.1-1988 ustar, as GNU tar writes it too).
//
// Whatever names the archive has, files are written under those asked for and nowhere else; an
// archive with absolute names or ".." is refused all the same, as nobody honest makes one.
#pragma once

#include "kernels/result.hpp"

#include <filesystem>
#include <span>
#include <string_view>

namespace troupe {

/// Writes each of `names`, which is a regular file somewhere in the archive, to `folder`/name. All
/// of them appear when the archive has been read to its end, or none. Error (data) where it is
/// damaged, is cut short or lacks one; (lost) where a file cannot be written.
Result<void> unpack(const std::filesystem::path& archive,
                    std::span<const std::string_view> names,
                    const std::filesystem::path& folder);

}  // namespace troupe
