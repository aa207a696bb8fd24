// Arrays of numbers as others write them, and NumPy's format for one (.npy, versions 1 to 3):
//
//   6 bytes    0x93 N U M P Y
//   2 bytes    version
//   2 or 4     N, little-endian (4 from version 2 on)
//   N bytes    {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
//   the rest   the elements, row-major
#pragma once

#include "kernels/result.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

class MappedFile;

/// Little-endian, as all that is read here.
enum class NumberType : std::uint8_t { float32, float64, uint8, int32, int64 };

std::size_t number_width(NumberType type);

/// Numbers in memory that is shared with whatever they were read from.
struct NumberArray {
  NumberType type = NumberType::float32;
  std::vector<std::int64_t> shape;   // row-major; no extent is 0
  std::span<const std::byte> bytes;  // elements * number_width(type), not aligned
  std::shared_ptr<const void> owner;
  std::shared_ptr<const MappedFile> file{};  // the owner where it is one; else null

  std::size_t size() const { return bytes.size() / number_width(type); }

  /// int64 beyond 2^53 is rounded.
  double operator[](std::size_t i) const;

  bool is_whole() const { return type != NumberType::float32 && type != NumberType::float64; }
};

/// "(3, 4)"
std::string extents_text(const std::vector<std::int64_t>& shape);

/// elements * width, or no value where an extent is 0 or negative, or that cannot be counted.
std::optional<std::size_t> counted_bytes(const std::vector<std::int64_t>& shape, std::size_t width);

/// The array of a whole .npy file, which lives as long as `owner`. Error (data): what is wrong, to
/// stand behind "... is not usable: ". Refused are other types, big-endian ones, columns first
/// (fortran_order), and bytes that are missing or left over.
Result<NumberArray> parse_npy(std::span<const std::byte> file, std::shared_ptr<const void> owner);

}  // namespace troupe
