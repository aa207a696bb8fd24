// A table turned into arrays, once: for tables that are larger than memory.
#pragma once

#include "kernels/result.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace troupe::proto {
class Csv;
}  // namespace troupe::proto

namespace troupe {

struct ConvertedTable {
  std::int64_t rows = 0;
  std::int64_t columns = 0;            // of x
  std::vector<std::string> classes{};  // by label; empty: targets are numbers
};

inline constexpr std::size_t kConvertedBlock = std::size_t{1} << 22;

/// Writes x.npy (float32) and y.npy (int32 labels, or float32) into `folder`, which must be new or empty, and the names of
/// the classes into classes.txt, a line each. Columns are used, and words numbered, as open_csv does; nothing is
/// normalised. The file is read twice, in blocks of about `block` bytes, so that memory does not grow with it. Error as
/// open_csv's; (usage) where the folder is not free, (lost) where it cannot be written.
Result<ConvertedTable> convert_csv(const proto::Csv& options,
                                   const std::filesystem::path& folder,
                                   std::size_t block = kConvertedBlock);

}  // namespace troupe
