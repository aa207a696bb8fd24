// Where arrays of one's own are: a folder of .npy files, a .npz archive or a safetensors file.
#pragma once

#include "kernels/result.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/data/input_file.hpp"
#include "runtime/data/number_array.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

class ArraySource {
 public:
  /// Reads an archive or a safetensors file whole, and of a folder nothing yet. Files in a folder of `mapped_from` bytes
  /// or more are mapped and not read. Error (data).
  static Result<ArraySource> open(const std::string& path, std::uintmax_t mapped_from);

  const std::string& path() const { return path_; }

  /// Whether there is an array of that name, however malformed. Error (data) where the archive is.
  Result<bool> has(const std::string& name) const;

  /// Error (data) with path, name and reason where it is missing or malformed; where it is missing with the arrays that there
  /// are, and which of them their names say to be samples and targets.
  Result<NumberArray> array(const std::string& name) const;

 private:
  std::vector<std::string> names() const;
  Result<NumberArray> from_folder(const std::string& name) const;
  Result<NumberArray> from_archive(const std::string& name) const;
  Result<NumberArray> from_safetensors(const std::string& name) const;

  std::string path_;
  std::uintmax_t mapped_from_ = 0;
  std::shared_ptr<const Bytes> archive_;  // null where it is no .npz
  std::optional<SafetensorsFile> tensors_;
};

}  // namespace troupe
