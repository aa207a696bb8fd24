// What a table has in its columns: for settings to paste, and for what is told of it.
#pragma once

#include "runtime/data/csv_columns.hpp"
#include "runtime/data/csv_reader.hpp"
#include "runtime/data/preparation.hpp"

#include <string>

namespace troupe {

class CsvLoader;
struct CsvTable;

/// Makes columns of words of those of numbers that have a field which is neither a number nor missing.
void find_categories(CsvReader reader, const proto::Csv& options, CsvColumns& columns);

/// "--set ... --set ...": by which every field of the table would be taken; "" where there is nothing to set. Error (data):
/// what is wrong with a line, whatever is set.
Result<std::string> csv_settings(CsvReader reader,
                                 const proto::Csv& options,
                                 const CsvColumns& columns,
                                 char separator);

/// What was understood of the training samples' file, and what looks wrong in it, into `to`.
void tell_csv(const proto::Csv& options,
              const CsvLoader& loader,
              const CsvTable& table,
              Preparation& to);

}  // namespace troupe
