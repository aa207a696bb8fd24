// Where the files of data sets lie.
#pragma once

#include "kernels/result.hpp"
#include "messages/proto.hpp"

#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace troupe {

/// $XDG_CACHE_HOME/troupe (where that is an absolute path), else ~/.cache/troupe; empty where
/// neither is known. Downloads go there.
std::filesystem::path cache_folder();

/// `path` where it is given, else $TROUPE_DATA/<name>, data/<name> and cache_folder()/<name>, in the
/// order in which they are searched.
std::vector<std::filesystem::path> folders_of(std::string_view name, std::string_view path);

/// Files that belong into one folder.
struct FileSet {
  std::string_view title;                   // of the data set, as people write it
  std::string_view name;                    // of the choice in proto::Data, and of the folder
  std::span<const std::string_view> files;  // each plain or with .gz; the plain one is preferred
};

/// The paths of `set.files` in the first of folders_of(set.name, path) that has all of them. Error
/// (data) with where they were looked for, what belongs there, and the key to set.
Result<std::vector<std::filesystem::path>> find_files(const FileSet& set, std::string_view path);

}  // namespace troupe
