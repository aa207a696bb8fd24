// Files of others' archives, read by libarchive: out of a tar archive onto the disk, out of a zip archive into memory.
#pragma once

#include "kernels/result.hpp"
#include "runtime/data/input_file.hpp"

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Writes each of `names`, which is a regular file somewhere in the tar archive (plain or gzip's; ustar, GNU or pax), to
/// `folder`/name. All of them appear when the archive has been read to its end, or none. Whatever names the archive
/// has, nothing else is written; an archive with absolute names or ".." is refused all the same, as nobody honest makes
/// one. Error (data) where it is damaged, is cut short or lacks one; (lost) where a file cannot be written.
Result<void> unpack(const std::filesystem::path& archive,
                    std::span<const std::string_view> names,
                    const std::filesystem::path& folder);

/// The member `name` of a zip archive in memory, as NumPy's savez writes one. It is as long as the archive's directory
/// says and has the CRC-32 that stands there, and is no longer than deflate could have made of the archive. Error (data):
/// what is wrong, to stand behind "... is not usable: "; where there is no such member, it says which there are.
Result<Bytes> unzip(const Bytes& archive, std::string_view name);

/// The same, and nothing where a sound archive has no such member; then `others`, unless null, gets the names of some that
/// there are.
Result<std::optional<Bytes>> unzip_if_there(const Bytes& archive,
                                            std::string_view name,
                                            std::vector<std::string>* others = nullptr);

}  // namespace troupe
