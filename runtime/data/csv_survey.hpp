// What a table has in its columns: for settings to paste, and for what is told of it.
#pragma once

#include "runtime/data/csv_columns.hpp"
#include "runtime/data/csv_reader.hpp"
#include "runtime/data/preparation.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

class CsvLoader;
struct CsvTable;

/// Makes columns of words of those of numbers that have a field which is neither a number nor missing.
void find_categories(CsvReader reader, const proto::Csv& options, CsvColumns& columns);

/// Whether a text begins with lines for readers rather than with names or samples that begin with #: other lines follow
/// two or more of these, or their fields are not as many.
bool begins_with_comments(CsvReader reader);

/// Whether the first line of a table without a number in it names the columns: by whether its words stand below it, too, in
/// columns whose words repeat. nullopt where that does not tell.
std::optional<bool> header_by_words(CsvReader reader, const proto::Csv& options);

/// "--set ... --set ...": by which every field of the table would be taken; "" where there is nothing to set. Error (data):
/// what is wrong with a line, whatever is set.
Result<std::string> csv_settings(CsvReader reader,
                                 const proto::Csv& options,
                                 const CsvColumns& columns,
                                 char separator);

constexpr std::int64_t kCounting = 8;  // rows, from which on a column that counts them is no chance

/// Whether so many different words name the rows of a column rather than tell something about them.
inline bool names_rows(std::size_t different, std::int64_t rows) {
  return 2 * static_cast<std::int64_t>(different) > rows + kCounting;
}

/// " --set data.csv.KEY=[a,b]", of what is set already and what comes to it; "" where nothing does.
std::string csv_list(const char* key,
                     const std::vector<std::string>& set,
                     const std::vector<std::string>& more);

/// Of columns that only count the rows, those to leave out: none where nothing would be left to learn from beside
/// `others` that are left out, too.
std::vector<std::string> left_without(const CsvColumns& columns,
                                      std::vector<std::string> counting,
                                      std::size_t others);

/// What was understood of the training samples' file, and what looks wrong in it, into `to`.
void tell_csv(const proto::Csv& options,
              const CsvLoader& loader,
              const CsvTable& table,
              Preparation& to);

}  // namespace troupe
