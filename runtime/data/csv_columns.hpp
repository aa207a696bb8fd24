// What the columns of a CSV file are for.
#pragma once

#include "kernels/result.hpp"

#include <array>
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

struct CsvRow;

/// The number that is the whole of a field, where there is one that is finite as float32.
std::optional<double> csv_number(std::string_view field);

/// The same, written as the options say: with a decimal comma, groups of thousands, units.
std::optional<double> csv_number(std::string_view field, const proto::Csv& options);

/// Whether the first line of a file names the columns, where its second one makes that clear: names are no numbers, and of
/// samples the same fields are numbers.
std::optional<bool> detected_header(const proto::Csv& options,
                                    const std::vector<std::string_view>& first,
                                    const std::vector<std::string_view>& second);

/// What makes numbers of fields that are none: a key with its value, and a unit.
struct CsvNumberSetting {
  std::string digits{};  // such as data.csv.decimal=comma
  std::string unit{};

  bool empty() const { return digits.empty() && unit.empty(); }

  /// "--set ..."
  std::string text() const;
};

/// The setting by which all of the fields would be numbers; empty where there is none, or none is needed.
CsvNumberSetting csv_number_setting(const std::vector<std::string_view>& fields,
                                    const proto::Csv& options,
                                    char separator);

/// Words for what is not known, where data.csv.missing_words names none.
inline constexpr std::array<std::string_view, 7> kMissingWords{
    "NA", "N/A", "#N/A", "NaN", "null", "None", "?"};

/// Whether the field is empty or a word for what is not known.
bool csv_missing(std::string_view field, const proto::Csv& options);

/// "2024-01-31", "31/01/24", "10:15:00": what begins with a digit and is parted twice alike.
bool csv_date(std::string_view field);

/// A field in quotes, the first 40 bytes of it where it is longer.
std::string csv_shown(std::string_view field);

enum class ColumnUse : std::uint8_t { number, words, target, left_out };

struct CsvColumns {
  bool header = false;             // the first line names them
  std::vector<std::string> names;  // (columns), or none
  std::vector<ColumnUse> uses;     // (columns)
  bool row_names = false;          // the first line has no field for the first column

  /// 'column "age"', or "column 3" where they have no names.
  std::string called(std::size_t column) const;

  /// What an option calls it: its name where that is the only one of its kind, else its number.
  std::string key(std::size_t column) const;

  /// That a row has a field for each column, or an empty one more, and is not the header once more, as where files were
  /// joined. Error (data). `without_target`: the last column has no field.
  Result<void> check_row(const CsvRow& row, bool without_target = false) const;
};

/// The column that data.csv.KEY means by a name or a number from 1. Error (usage) with the nearest name.
Result<std::size_t> csv_column(const CsvColumns& columns,
                               const char* key,
                               const std::string& asked);

/// From the first line of a file and its second one (no fields where there is none), which `separator` parted. A first column of which only the
/// header says nothing, as R writes names of rows, is left out, and so is a last one that is nothing but a separator.
/// Error (data) where it cannot be told whether the first line is a header; (usage) where an option names a column
/// that there is not, or one for two things. `categories=auto` is left for the caller.
/// `without_target`: it is of samples to be predicted, and the target is behind all columns of the file.
Result<CsvColumns> csv_columns(const proto::Csv& options,
                               const std::vector<std::string_view>& first,
                               const std::vector<std::string_view>& second,
                               char separator,
                               bool without_target = false);

}  // namespace troupe
