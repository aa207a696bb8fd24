// The rows of a CSV file, field by field (RFC 4180, with any separator). Spaces around a field that is not
// quoted do not count, nor do blank lines and a byte-order mark; lines end as on any system.
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
  /// Of a text that outlives this. A separator of ' ' stands for any number of blanks and tabs. Lines that begin with
  /// `comment` are passed over, unless it is empty.
  CsvReader(std::string_view text, char separator, std::string comment = {});

  /// Goes on with another piece of the same file, which begins where a row does; the piece before has been read.
  void go_on(std::string_view text) { rest_ = text; }

  /// The next row; false at the end. Error (data): what is wrong with which line, to stand behind
  /// "... is not usable: ".
  Result<bool> next(CsvRow& row);

 private:
  bool is_blank(char c) const { return (c == ' ' || c == '\t') && (c != separator_ || c == ' '); }

  bool at_line_end() const { return rest_.empty() || rest_[0] == '\n' || rest_[0] == '\r'; }

  void skip_blanks();
  void skip_line_end();
  Result<void> split(CsvRow& row);
  Result<std::string_view> quoted();

  std::string_view rest_;
  char separator_;
  std::string comment_;
  std::string ends_;  // what ends a field that is not quoted
  std::int64_t line_ = 0;
  std::deque<std::string> unquoted_;  // fields of this row that are not in the text as they are
};

/// The separator that the first lines of a text are made of: that of ; tab | , and blank which makes equally many fields
/// of each, two at least; where there is none a comma.
char found_separator(std::string_view text, const std::string& comment);

}  // namespace troupe
