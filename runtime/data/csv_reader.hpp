// The rows of a CSV file, field by field (RFC 4180, with any separator; a quoted field stays on its
// line). Spaces around a field that is not quoted do not count, nor do blank lines, a byte-order mark
// and the carriage returns of other systems.
#pragma once

#include "kernels/result.hpp"

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

struct CsvRow {
  std::int64_t line = 0;                 // of the file, 1 for the first
  std::vector<std::string_view> fields;  // valid until the next row is read
};

class CsvReader {
 public:
  /// Of a text that outlives this.
  CsvReader(std::string_view text, char separator);

  /// Goes on with another piece of the same file, which begins where a line does; the piece before has been read.
  void go_on(std::string_view text) { rest_ = text; }

  /// The next row; false at the end. Error (data): what is wrong with which line, to stand behind
  /// "... is not usable: ".
  Result<bool> next(CsvRow& row);

 private:
  Result<void> split(std::string_view line, CsvRow& row);
  Result<std::string_view> quoted(std::string_view& rest, std::int64_t line);

  std::string_view rest_;
  char separator_;
  std::int64_t line_ = 0;
  std::deque<std::string> unquoted_;  // fields of this row that are not in the text as they are
};

}  // namespace troupe
