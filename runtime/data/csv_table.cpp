#include "runtime/data/csv_table.hpp"

#include "experiment/data.pb.h"
#include "runtime/data/input_file.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>

namespace troupe {
namespace {

constexpr std::size_t kCsvBytesMax = std::size_t{1} << 30;
constexpr std::size_t kWordsMax = 4096;  // of one column

}  // namespace

std::vector<std::size_t> WordNumbers::sort() {
  std::vector<std::pair<double, std::string_view>> order;  // the map's own order is that of bytes
  bool all = true;
  for (const auto& [word, number] : numbers_) {
    const auto value = csv_number(word);
    all = all && value;
    order.emplace_back(value.value_or(0), word);
  }
  if (all) {
    std::stable_sort(
        order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  }
  std::vector<std::size_t> renamed(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    std::size_t& number = numbers_.find(order[i].second)->second;
    renamed[number] = i;
    number = i;
  }
  return renamed;
}

std::vector<std::string> WordNumbers::words() const {
  std::vector<std::string> words(numbers_.size());
  for (const auto& [word, number] : numbers_) {
    words[number] = utf8_name(word);
  }
  return words;
}

std::vector<std::string> CsvLoader::class_names() const {
  return options_.values() ? std::vector<std::string>() : words_[target_].words();
}

std::vector<std::vector<std::string>> CsvLoader::column_words() const {
  std::vector<std::vector<std::string>> words;
  for (std::size_t column = 0; column < words_.size(); ++column) {
    if (columns_.uses[column] == ColumnUse::number || columns_.uses[column] == ColumnUse::words) {
      words.push_back(words_[column].words());
    }
  }
  return words;
}

std::vector<std::string> CsvLoader::column_names() const {
  std::vector<std::string> names;
  for (std::size_t column = 0; column < columns_.names.size(); ++column) {
    const ColumnUse use = columns_.uses[column];
    if (use == ColumnUse::number || use == ColumnUse::words) {
      names.push_back(utf8_name(columns_.names[column]));
    }
  }
  return names;
}

std::size_t CsvLoader::classes() const {
  return options_.values() ? 0 : words_[target_].size();
}

char CsvLoader::separator() const {
  return options_.separator() == "tab" ? '\t' : options_.separator()[0];
}

Error CsvLoader::wrong(const CsvRow& row, std::size_t column, const std::string& what) const {
  return {ErrorKind::data, concat("line ", row.line, ", ", columns_.called(column), ": ", what)};
}

Result<double> CsvLoader::word(const CsvRow& row, std::size_t column, std::size_t words_max) {
  const std::string_view field = row.fields[column];
  const std::string plain = prepared_ ? utf8_name(field) : std::string();
  if (const auto known = words_[column].find(prepared_ ? std::string_view(plain) : field)) {
    return static_cast<double>(*known);
  }
  if (learnt_) {
    return wrong(row,
                 column,
                 concat(csv_shown(field),
                        prepared_ ? " did not occur in what the weights were trained on"
                                  : " does not occur in the training samples' file"));
  }
  if (words_[column].size() == words_max) {
    return wrong(row, column, concat("these are more than ", words_max, " different ones"));
  }
  return static_cast<double>(words_[column].add(field));
}

Result<double> CsvLoader::cell(const CsvRow& row, std::size_t column) {
  const std::string_view field = row.fields[column];
  const bool target = columns_.uses[column] == ColumnUse::target;
  if (field.empty()) {
    return wrong(row, column, "the field is empty; complete it, or take the row or the column out");
  }
  if (columns_.uses[column] == ColumnUse::words) {
    return word(row, column, kWordsMax);
  }
  const auto number = csv_number(field);
  if (target && !options_.values()) {
    if (number && *number != std::floor(*number)) {
      return wrong(row,
                   column,
                   concat(csv_shown(field),
                          " is no class: right are whole numbers and words, or "
                          "data.csv.values=true, which predicts numbers"));
    }
    return word(row, column, kClassesMax);
  }
  if (!number) {
    return wrong(row,
                 column,
                 concat(csv_shown(field),
                        " is no number (or none of float32)",
                        target ? ""
                               : "; a column of words has to be named in data.csv.categories "
                                 "or data.csv.leave_out"));
  }
  return *number;
}

Result<void> CsvLoader::add_row(const CsvRow& row, CsvTable& table) {
  if (row.fields.size() != columns_.uses.size()) {
    return Error{ErrorKind::data,
                 concat("line ",
                        row.line,
                        ": it has ",
                        row.fields.size(),
                        " fields; right are ",
                        columns_.uses.size())};
  }
  for (std::size_t column = 0; column < row.fields.size(); ++column) {
    if (columns_.uses[column] == ColumnUse::left_out) {
      continue;
    }
    const auto number = cell(row, column);
    if (!number) {
      return number.error();
    }
    (column == target_ ? table.targets : table.cells).push_back(*number);
  }
  table.lines.push_back(row.line);
  return {};
}

/// From the first two lines of the file of training samples.
Result<void> CsvLoader::learn_columns(std::string_view text) {
  CsvReader reader(text, separator());
  CsvRow row;
  std::vector<std::vector<std::string>> lines(2);  // a row's fields are gone with the next one
  for (auto& line : lines) {
    const auto more = reader.next(row);
    if (!more) {
      return more.error();
    }
    if (*more) {
      line.assign(row.fields.begin(), row.fields.end());
    }
  }
  if (lines[0].empty()) {
    return Error{ErrorKind::data, "it holds no line"};
  }
  auto columns =
      csv_columns(options_, {lines[0].begin(), lines[0].end()}, {lines[1].begin(), lines[1].end()});
  if (!columns) {
    return columns.error();
  }
  columns_ = *std::move(columns);
  words_.resize(columns_.uses.size());
  const auto target = std::find(columns_.uses.begin(), columns_.uses.end(), ColumnUse::target);
  target_ = static_cast<std::size_t>(target - columns_.uses.begin());
  return prepared_ ? take_words(*prepared_) : Result<void>();
}

/// The words that the weights were trained on.
Result<void> CsvLoader::take_words(const Preparation& prepared) {
  std::size_t at = 0;  // among the used columns
  bool fits = options_.values() == prepared.classes.empty();
  for (std::size_t column = 0; column < words_.size(); ++column) {
    const ColumnUse use = columns_.uses[column];
    if (use == ColumnUse::target && !options_.values()) {
      words_[column] = WordNumbers(prepared.classes);
    }
    if (use == ColumnUse::number || use == ColumnUse::words) {
      const auto words =
          at < prepared.words.size() ? prepared.words[at] : std::vector<std::string>();
      fits = fits && words.empty() == (use == ColumnUse::number);
      words_[column] = WordNumbers(words);
      widths_.push_back(words.size());
      ++at;
    }
  }
  learnt_ = true;
  const std::vector<std::string> names = column_names();
  const auto wrong_name = [&] {
    return std::mismatch(
               names.begin(), names.end(), prepared.columns.begin(), prepared.columns.end())
        .first;
  };
  std::string what = "its columns are not those that the weights were trained on";
  if (!fits || at != prepared.words.size()) {
    return Error{ErrorKind::data, what};
  }
  if (names.empty() || prepared.columns.empty() || wrong_name() == names.end()) {
    return {};  // nothing by which they could be told
  }
  const auto place = static_cast<std::size_t>(wrong_name() - names.begin());
  return Error{ErrorKind::data,
               concat(what,
                      ": ",
                      csv_shown(names[place]),
                      " stands where ",
                      csv_shown(prepared.columns[place]),
                      " did")};
}

/// Once the training samples have been read.
void CsvLoader::learn_words(CsvTable& table) {
  for (std::size_t column = 0; column < words_.size(); ++column) {
    if (columns_.uses[column] == ColumnUse::number || columns_.uses[column] == ColumnUse::words) {
      widths_.push_back(words_[column].size());
    }
  }
  sort_words(table);
  learnt_ = true;
}

/// That the first line of the file of test samples names the same columns.
Result<void> CsvLoader::check_header(const CsvRow& row) const {
  const bool same = std::equal(
      row.fields.begin(), row.fields.end(), columns_.names.begin(), columns_.names.end());
  return same ? Result<void>()
              : Error{ErrorKind::data,
                      concat("line ",
                             row.line,
                             ": it does not name the columns of the training samples' file")};
}

Result<void> CsvLoader::read_rows(std::string_view text, CsvTable& table) {
  const bool known = !columns_.uses.empty();
  if (auto learnt = known ? Result<void>() : learn_columns(text); !learnt) {
    return learnt;
  }
  CsvReader reader(text, separator());
  return read_rows(reader, columns_.header, table);
}

Result<void> CsvLoader::read_rows(CsvReader& reader, bool header, CsvTable& table) {
  CsvRow row;
  for (;; header = false) {
    const auto more = reader.next(row);
    if (!more) {
      return more.error();
    }
    if (!*more) {
      return {};
    }
    if (auto added = header ? check_header(row) : add_row(row, table); !added) {
      return added;
    }
  }
}

Result<void> CsvLoader::walk(const std::string& path,
                             std::size_t block,
                             const std::function<Result<void>(const CsvTable&)>& take) {
  const auto unusable = [&](const std::string& what) {
    return Error{ErrorKind::data, concat(path, " is not usable: ", what)};
  };
  InputFile file(path);
  Bytes bytes;
  std::optional<CsvReader> reader;
  for (bool more = true; more;) {
    const std::size_t before = bytes.size();
    if (!file.read(block, bytes)) {
      return unusable(file.error());
    }
    more = bytes.size() == before + block;
    const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const std::size_t whole = more ? all.rfind('\n') + 1 : all.size();  // npos + 1 is 0
    const std::string_view text = all.substr(0, whole);
    if (more && (whole == 0 || (!reader && std::count(text.begin(), text.end(), '\n') < 2))) {
      if (bytes.size() > kCsvBytesMax) {
        return unusable(concat("it has ", bytes.size(), " bytes without the end of a line"));
      }
      continue;  // the columns are learnt from two lines
    }
    const bool first = !reader;
    const bool known = !columns_.uses.empty();
    Result<void> read;
    if (first) {
      read = known ? Result<void>() : learn_columns(text);
      reader.emplace(text, separator());
    } else {
      reader->go_on(text);
    }
    CsvTable table;
    read = read ? read_rows(*reader, first && columns_.header, table) : read;
    if (!read) {
      return read.error().kind == ErrorKind::data ? unusable(read.error().message) : read.error();
    }
    if (auto taken = take(table); !taken) {
      return taken;
    }
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(whole));
  }
  return {};
}

void CsvLoader::finish_words() {
  CsvTable none;
  learn_words(none);
}

void CsvLoader::sort_words(CsvTable& table) {
  const std::size_t used = widths_.size();
  std::size_t at = 0;  // among the used columns
  for (std::size_t column = 0; column < words_.size(); ++column) {
    const ColumnUse use = columns_.uses[column];
    const auto renamed = words_[column].sort();
    if (use == ColumnUse::target && !options_.values()) {
      for (double& target : table.targets) {
        target = static_cast<double>(renamed[static_cast<std::size_t>(target)]);
      }
    }
    for (std::size_t i = at; use == ColumnUse::words && i < table.cells.size(); i += used) {
      table.cells[i] = static_cast<double>(renamed[static_cast<std::size_t>(table.cells[i])]);
    }
    at += use == ColumnUse::words || use == ColumnUse::number;
  }
}

namespace {

/// A table is kept in memory, so one that is too large is told before it is read.
Result<void> check_csv_size(const std::string& path) {
  std::error_code code;
  const std::uintmax_t bytes = std::filesystem::file_size(path, code);
  if (!code && bytes > kCsvBytesMax) {
    return Error{ErrorKind::data,
                 concat(path,
                        " is not usable: it has ",
                        bytes,
                        " bytes, and a table, which is kept in memory, may have ",
                        kCsvBytesMax,
                        " (1 GiB)")};
  }
  return {};
}

}  // namespace

Result<CsvTable> CsvLoader::read(const std::string& path) {
  if (auto fits = check_csv_size(path); !fits) {
    return fits.error();
  }
  const auto bytes = read_input_file(path, kCsvBytesMax);
  if (!bytes) {
    return bytes.error();
  }
  CsvTable table;
  const std::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  const auto unusable = [&](const std::string& what) {
    return Error{ErrorKind::data, concat(path, " is not usable: ", what)};
  };
  if (auto read = read_rows(text, table); !read) {
    return read.error().kind == ErrorKind::data ? unusable(read.error().message) : read.error();
  }
  if (table.cells.empty()) {
    return unusable("it holds no sample, or no column beside the target");
  }
  if (!learnt_) {
    learn_words(table);
  }
  return table;
}

}  // namespace troupe
