#include "runtime/data/csv_reader.hpp"

#include <algorithm>

namespace troupe {
namespace {

constexpr std::size_t kFieldsMax = 100'000;  // of a line

/// Without what `separator` leaves of the blanks on both sides.
std::string_view trimmed_field(std::string_view text, char separator) {
  const auto blank = [&](char c) {
    return c != separator && (c == ' ' || c == '\t');
  };
  while (!text.empty() && blank(text.front())) {
    text.remove_prefix(1);
  }
  while (!text.empty() && blank(text.back())) {
    text.remove_suffix(1);
  }
  return text;
}

Error wrong_line(std::int64_t line, const std::string& what) {
  return {ErrorKind::data, concat("line ", line, ": ", what)};
}

}  // namespace

CsvReader::CsvReader(std::string_view text, char separator) : rest_(text), separator_(separator) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (rest_.starts_with(kByteOrderMark)) {
    rest_.remove_prefix(kByteOrderMark.size());
  }
}

Result<bool> CsvReader::next(CsvRow& row) {
  while (!rest_.empty()) {
    const std::size_t end = std::min(rest_.find('\n'), rest_.size());
    std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    ++line_;
    if (!line.empty() && line.back() == '\r') {
      line.remove_suffix(1);
    }
    if (trimmed_field(line, separator_).empty()) {
      continue;
    }
    row.line = line_;
    if (auto whole = split(line, row); !whole) {
      return whole.error();
    }
    return true;
  }
  return false;
}

Result<void> CsvReader::split(std::string_view line, CsvRow& row) {
  row.fields.clear();
  unquoted_.clear();
  for (;;) {
    if (row.fields.size() == kFieldsMax) {
      return wrong_line(line_, concat("it has more than ", kFieldsMax, " fields"));
    }
    std::string_view begin = trimmed_field(line, separator_);
    if (!begin.empty() && begin.front() == '"') {
      const auto field = quoted(begin, line_);
      if (!field) {
        return field.error();
      }
      row.fields.push_back(*field);
      line = begin;
      if (!line.empty() && line.front() != separator_) {
        return wrong_line(line_, "there is more between a closing quote and the next separator");
      }
    } else {
      const std::size_t end = std::min(line.find(separator_), line.size());
      row.fields.push_back(trimmed_field(line.substr(0, end), separator_));
      line.remove_prefix(end);
    }
    if (line.empty()) {
      return {};
    }
    line.remove_prefix(1);
  }
}

/// The field at the opening quote with which `rest` begins; leaves what stands behind it.
Result<std::string_view> CsvReader::quoted(std::string_view& rest, std::int64_t line) {
  rest.remove_prefix(1);
  std::string* text = nullptr;  // once the field has a quote in it
  for (;;) {
    const std::size_t end = rest.find('"');
    if (end == rest.npos) {
      return wrong_line(line, "a quote is opened and not closed on that line");
    }
    const std::string_view part = rest.substr(0, end);
    const bool doubled = end + 1 < rest.size() && rest[end + 1] == '"';
    rest.remove_prefix(end + (doubled ? 2 : 1));
    if (doubled || text) {
      text = text ? text : &unquoted_.emplace_back();
      text->append(part).append(doubled ? "\"" : "");
    }
    if (!doubled) {
      rest = trimmed_field(rest, separator_);
      return text ? std::string_view(*text) : part;
    }
  }
}

}  // namespace troupe
