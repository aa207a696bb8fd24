// Tensors by name in one file, in the format that PyTorch users exchange weights in
// (huggingface/safetensors):
//
//   8 bytes    N, little-endian
//   N bytes    JSON: {"__metadata__": {"key": "text"},
//                     "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
//   the rest   the elements, row-major and little-endian; offsets count from here
//
// Nothing that a header says is believed: it is checked against the file before it is used, and
// memory grows with what has really been read. The tensors must fill the rest of the file without
// holes or overlaps.
#pragma once

#include "kernels/result.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// One tensor of a file, read or to be written.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;                 // "F32", "BF16", "I64", ...
  std::vector<std::int64_t> shape;   // [] for a scalar
  std::span<const std::byte> bytes;  // elements * width; not owned

  std::int64_t elements() const;
};

/// A file read into memory. Copies share its contents, and the bytes of entries live as long as
/// any of them. A file that becomes shorter while it is read is an Error (data); afterwards it may
/// change freely. write_safetensors replaces files whole.
class SafetensorsFile {
 public:
  /// Error (data) with path and reason where the file cannot be read or is not well-formed.
  static Result<SafetensorsFile> open(const std::filesystem::path& path);

  /// `file` with other tensors, whose names differ; `contents` owns their bytes.
  static SafetensorsFile of(SafetensorsFile file,
                            std::vector<SafetensorsEntry> entries,
                            std::shared_ptr<const void> contents);

  const std::filesystem::path& path() const { return path_; }

  /// In the order of the header.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }

  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  /// Null where there is none of that name.
  const SafetensorsEntry* find(std::string_view name) const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<const void> contents_;  // of the whole file
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, std::size_t, std::less<>> by_name_;  // index into entries_
  std::map<std::string, std::string> metadata_;
};

/// Whether floats_of() takes this dtype: F32, F16 and BF16.
bool readable_as_floats(std::string_view dtype);

/// The elements as float32, exactly. Throws ContractError where the dtype is not readable so.
std::vector<float> floats_of(const SafetensorsEntry& entry);

/// Writes `entries` in the order given, whole or not at all (replace_file). Throws ContractError
/// where a name comes twice or the bytes do not agree with dtype and shape. Error (lost) with path
/// and reason.
Result<void> write_safetensors(const std::filesystem::path& path,
                               const std::vector<SafetensorsEntry>& entries,
                               const std::map<std::string, std::string>& metadata);

}  // namespace troupe
