// Arrays of numbers as others write them, and NumPy's format for one (.npy, versions 1 to 3):
//
//   6 bytes    0x93 N U M P Y
//   2 bytes    version
//   2 or 4     N, little-endian (4 from version 2 on)
//   N bytes    {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
//   the rest   the elements, row-major or, with fortran_order, column-major
#pragma once

#include "kernels/result.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class MappedFile;

/// What the elements of an array are. `read` takes one of them from memory that is not aligned; what has 64 bits is
/// rounded beyond 2^53.
struct NumberType {
  std::string_view npy;          // in .npy, without the order of the bytes: "f4"
  std::string_view safetensors;  // "F32"
  std::size_t width;             // bytes
  bool whole;
  double (*read)(const std::byte* bytes);
};

/// Null where there is none of that name.
const NumberType* number_type_of_npy(std::string_view name);
const NumberType* number_type_of_safetensors(std::string_view name);

/// Numbers in memory that is shared with whatever they were read from.
struct NumberArray {
  const NumberType* type;
  std::vector<std::int64_t> shape;   // no extent is 0
  std::span<const std::byte> bytes;  // elements * type->width, not aligned
  std::shared_ptr<const void> owner;
  std::shared_ptr<const MappedFile> file{};  // the owner where it is one; else null
  bool swapped = false;                      // big-endian
  std::vector<std::size_t> strides{};        // elements, by dimension; empty: row-major

  std::size_t size() const { return bytes.size() / type->width; }

  /// The i-th in row-major order.
  double operator[](std::size_t i) const;

  /// As (N, H, W, C), where the elements are of (N, C, H, W).
  NumberArray channels_last() const;
};

/// So many rows of `width` zeros, of one byte each.
NumberArray zeros(std::int64_t rows, std::size_t width);

/// "(3, 4)"
std::string extents_text(const std::vector<std::int64_t>& shape);

/// elements * width, or no value where an extent is 0 or negative, or that cannot be counted.
std::optional<std::size_t> counted_bytes(const std::vector<std::int64_t>& shape, std::size_t width);

/// The array of a whole .npy file, which lives as long as `owner`. Error (data): what is wrong, to
/// stand behind "... is not usable: ". Refused are types without a NumberType, and bytes that are missing or left over.
Result<NumberArray> parse_npy(std::span<const std::byte> file, std::shared_ptr<const void> owner);

}  // namespace troupe
