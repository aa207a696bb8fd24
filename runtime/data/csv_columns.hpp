// What the columns of a CSV file are for.
#pragma once

#include "kernels/result.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::proto {
class Csv;
}  // namespace troupe::proto

namespace troupe {

/// The number that is the whole of a field, where there is one that is finite as float32.
std::optional<double> csv_number(std::string_view field);

/// A field in quotes, the first 40 bytes of it where it is longer.
std::string csv_shown(std::string_view field);

enum class ColumnUse : std::uint8_t { number, words, target, left_out };

struct CsvColumns {
  bool header = false;             // the first line names them
  std::vector<std::string> names;  // (columns), or none
  std::vector<ColumnUse> uses;     // (columns)

  /// 'column "age"', or "column 3" where they have no names.
  std::string called(std::size_t column) const;
};

/// From the first line of a file and its second one (no fields where there is none). Error (data)
/// where it cannot be told whether the first line is a header; (usage) where an option names a column
/// that there is not, or one for two things.
Result<CsvColumns> csv_columns(const proto::Csv& options,
                               const std::vector<std::string_view>& first,
                               const std::vector<std::string_view>& second);

}  // namespace troupe
