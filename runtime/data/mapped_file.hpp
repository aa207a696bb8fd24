// A file whose bytes are in memory only while they are looked at.
#pragma once

#include "kernels/result.hpp"

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace troupe {

/// The operating system reads pages as they are touched, and takes them back where memory is short.
class MappedFile {
 public:
  /// Error (data): what is wrong, to stand behind "... is not usable: ".
  static Result<std::shared_ptr<const MappedFile>> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

  /// Whether the file is still as long as it was: beyond its end there is nothing that could be read.
  bool is_whole() const;

 private:
  MappedFile(int file, const std::byte* data, std::size_t size)
      : file_(file), data_(data), size_(size) {}

  int file_;
  const std::byte* data_;
  std::size_t size_;
};

}  // namespace troupe
