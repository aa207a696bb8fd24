#include "runtime/data/csv_reader.hpp"

#include <algorithm>

namespace troupe {
namespace {

constexpr std::size_t kFieldsMax = 100'000;  // of a line
constexpr int kRowsLookedAt = 20;            // for the separator

Error wrong_line(std::int64_t line, const std::string& what) {
  return {ErrorKind::data, concat("line ", line, ": ", what)};
}

}  // namespace

CsvReader::CsvReader(std::string_view text, char separator, std::string comment)
    : rest_(text),
      separator_(separator),
      comment_(std::move(comment)),
      ends_(separator == ' ' ? " \t\r\n" : std::string("\r\n") + separator) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (rest_.starts_with(kByteOrderMark)) {
    rest_.remove_prefix(kByteOrderMark.size());
  }
}

void CsvReader::skip_blanks() {
  while (!rest_.empty() && is_blank(rest_[0])) {
    rest_.remove_prefix(1);
  }
}

void CsvReader::skip_line_end() {
  rest_.remove_prefix(rest_.starts_with("\r\n") ? 2 : rest_.empty() ? 0 : 1);
}

Result<bool> CsvReader::next(CsvRow& row) {
  while (!rest_.empty()) {
    ++line_;
    const bool comment = !comment_.empty() && rest_.starts_with(comment_);
    if (comment) {
      rest_.remove_prefix(std::min(rest_.find_first_of("\r\n"), rest_.size()));
    }
    skip_blanks();
    if (comment || at_line_end()) {
      skip_line_end();
      continue;
    }
    row.line = line_;
    const std::string_view text = rest_;
    TROUPE_TRY(split(row));
    if (text.substr(0, text.size() - rest_.size()).find('\0') != text.npos) {
      return wrong_line(line_, "it has a byte of 0, which no text has");
    }
    return true;
  }
  return false;
}

Result<void> CsvReader::split(CsvRow& row) {
  row.fields.clear();
  unquoted_.clear();
  for (;;) {
    if (row.fields.size() == kFieldsMax) {
      return wrong_line(line_, concat("it has more than ", kFieldsMax, " fields"));
    }
    skip_blanks();
    if (rest_.starts_with('"')) {
      const auto field = quoted();
      TROUPE_TRY(field);
      row.fields.push_back(*field);
      const bool apart = !rest_.empty() && is_blank(rest_[0]);
      skip_blanks();
      if (!at_line_end() && !(separator_ == ' ' ? apart : rest_[0] == separator_)) {
        return wrong_line(line_, "there is more between a closing quote and the next separator");
      }
    } else {
      const std::size_t end = std::min(rest_.find_first_of(ends_), rest_.size());
      std::string_view field = rest_.substr(0, end);
      while (!field.empty() && is_blank(field.back())) {
        field.remove_suffix(1);
      }
      row.fields.push_back(field);
      rest_.remove_prefix(end);
    }
    if (separator_ == ' ') {
      skip_blanks();
    }
    if (at_line_end()) {
      skip_line_end();
      return {};
    }
    rest_.remove_prefix(separator_ == ' ' ? 0 : 1);
  }
}

/// The field at the opening quote with which the rest begins; leaves what stands behind it.
Result<std::string_view> CsvReader::quoted() {
  const std::int64_t opened = line_;
  rest_.remove_prefix(1);
  std::string* text = nullptr;  // once the field has a quote in it
  for (;;) {
    const std::size_t end = rest_.find('"');
    if (end == rest_.npos) {
      return wrong_line(opened, "a quote is opened and never closed");
    }
    const std::string_view part = rest_.substr(0, end);
    line_ += std::count(part.begin(), part.end(), '\n');
    const bool doubled = end + 1 < rest_.size() && rest_[end + 1] == '"';
    rest_.remove_prefix(end + (doubled ? 2 : 1));
    if (doubled || text) {
      text = text ? text : &unquoted_.emplace_back();
      text->append(part).append(doubled ? "\"" : "");
    }
    if (!doubled) {
      return text ? std::string_view(*text) : part;
    }
  }
}

char found_separator(std::string_view text, const std::string& comment) {
  for (const char separator : {';', '\t', '|', ',', ' '}) {
    CsvReader reader(text, separator, comment);
    CsvRow row;
    std::size_t fields = 0;
    bool alike = true;
    for (int i = 0; i < kRowsLookedAt && alike; ++i) {
      const auto more = reader.next(row);
      if (!more || !*more) {
        alike = static_cast<bool>(more);
        break;
      }
      // R names no column of row names, and some programs end rows, but not the header, by a separator.
      const bool one_more = i == 1 && row.fields.size() == fields + 1 && fields > 1;
      alike = row.fields.size() >= 2 && (i == 0 || row.fields.size() == fields || one_more);
      fields = row.fields.size();
    }
    if (alike && fields >= 2) {
      return separator;
    }
  }
  return ',';
}

}  // namespace troupe
