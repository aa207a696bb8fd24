// Data sets from their public places, checked against pinned SHA-256 sums.
//
//   URL/file --download--> FOLDER/file                         kept as it is (.gz is read as such)
//   URL/archive --download--> FOLDER/archive --unpack--> FOLDER/files   the archive is removed
#pragma once

#include "kernels/result.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

struct FetchFile {
  std::string_view name;                       // below the set's URL
  std::string_view sha256;                     // of what is downloaded
  std::span<const std::string_view> unpacked;  // what is taken out of an archive
};

struct FetchSet {
  std::string_view name;   // of the folder in the usual places (folders.hpp)
  std::string_view title;  // as people write it
  std::string_view url;    // of the folder on the server
  std::span<const FetchFile> files;
};

/// All that can be fetched.
std::span<const FetchSet> fetch_sets();

struct FetchOptions {
  std::filesystem::path folder;  // made where it is not there
  std::string url{};  // of another server's folder with the same files; "": the set's own
  std::map<std::string, std::string> sha256{};  // by file name, in place of the pinned ones
  int stall_seconds = 30;                       // as in Download
  int attempts = 5;
  double pause_seconds = 1;

  /// Of the file that is on its way, as in Download.
  std::function<void(std::string_view file, std::int64_t bytes, std::int64_t total)> progress{};
  /// One sentence: what is done, or why something is done again.
  std::function<void(std::string_view file, const std::string&)> note{};
};

/// Fetches what is not there yet. Error (data) where that fails, or a file that is there has another
/// SHA-256; (lost) where something cannot be written, as on a full disk.
Result<void> fetch(const FetchSet& set, const FetchOptions& options);

}  // namespace troupe
