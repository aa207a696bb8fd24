// Files of others, which are not believed: memory grows with what has really been read.
#pragma once

#include "kernels/result.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace troupe {

using Bytes = std::vector<std::uint8_t>;

/// "it cannot be opened: No such file or directory, as seen from /home/me": `number` is errno's, and where a
/// relative path begins is said where nothing is there.
std::string cannot_be_opened(const std::filesystem::path& path, int number);

/// A file as a stream of bytes, inflated where it is gzip's, bzip2's, xz's or zstd's (whatever its name says), to at most a
/// hundred times its size (or 64 MiB where that is more): nothing of use shrinks so far. Pipes and
/// devices are not opened.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  /// Appends up to `count` bytes to `out`, fewer at the end of the file; false: see error().
  bool read(std::size_t count, Bytes& out);

  /// What is wrong, to stand behind "... is not usable: ".
  std::string error() const;

 private:
  std::string path_;
  void* file_ = nullptr;    // zlib's gzFile; null where it could not be opened
  void* packed_ = nullptr;  // libarchive's reader of what zlib does not know; else null
  std::string refusal_;     // why it was not opened, or is not read on; else empty
  std::size_t bytes_max_ = 0;
  std::size_t bytes_read_ = 0;
};

/// A whole file. Error (data) where it cannot be read or is longer than `bytes_max`.
Result<Bytes> read_input_file(const std::filesystem::path& path, std::size_t bytes_max);

}  // namespace troupe
