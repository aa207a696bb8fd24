#include "runtime/data/csv_table.hpp"

#include "experiment/data.pb.h"
#include "kernels/wording.hpp"
#include "runtime/data/csv_survey.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {
namespace {

constexpr std::size_t kWordsMax = 4096;  // of one column

/// Whether nothing is known. A column of words has NA as a word, too, where what is missing is refused.
bool is_missing(std::string_view field, ColumnUse use, const proto::Csv& options) {
  return field.empty() || ((use != ColumnUse::words || options.missing() != proto::Csv::refuse) &&
                           csv_missing(field, options));
}

}  // namespace

std::vector<std::string> CsvLoader::class_names() const {
  return options_.values() ? std::vector<std::string>() : words_[target_].words();
}

std::size_t CsvLoader::marks() const {
  return options_.missing() == proto::Csv::token
             ? static_cast<std::size_t>(
                   std::count(columns_.uses.begin(), columns_.uses.end(), ColumnUse::number))
             : 0;
}

std::vector<std::vector<std::string>> CsvLoader::column_words() const {
  std::vector<std::vector<std::string>> words;
  for (std::size_t column = 0; column < words_.size(); ++column) {
    if (is_used(column)) {
      words.push_back(words_[column].words());
    }
  }
  words.resize(words.size() + marks());
  return words;
}

std::vector<std::string> CsvLoader::column_names() const {
  std::vector<std::string> names;
  std::vector<std::string> marked;
  for (std::size_t column = 0; column < columns_.names.size(); ++column) {
    if (is_used(column)) {
      names.push_back(utf8_name(columns_.names[column]));
    }
    if (marks() > 0 && columns_.uses[column] == ColumnUse::number) {
      marked.push_back(names.back() + " is missing");
    }
  }
  names.insert(names.end(), marked.begin(), marked.end());
  return names;
}

std::vector<std::string> CsvLoader::written(std::size_t column, double stand_in) const {
  const auto ways = stand_ins_.find({column, stand_in});
  return ways == stand_ins_.end()
             ? std::vector<std::string>()
             : std::vector<std::string>(ways->second.begin(), ways->second.end());
}

std::size_t CsvLoader::classes() const {
  return options_.values() ? 0 : words_[target_].size();
}

Error CsvLoader::wrong(const CsvRow& row, std::size_t column, const std::string& what) const {
  return {ErrorKind::data, concat("line ", row.line, ", ", columns_.called(column), ": ", what)};
}

Result<double> CsvLoader::word(const CsvRow& row,
                               std::size_t column,
                               std::string_view field,
                               std::size_t words_max) {
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

/// No value where it is missing, and that is not refused.
Result<std::optional<double>> CsvLoader::cell(const CsvRow& row, std::size_t column) {
  const std::string_view field = row.fields[column];
  const ColumnUse use = columns_.uses[column];
  const bool refused = options_.missing() == proto::Csv::refuse;
  const bool classes = use == ColumnUse::target && !options_.values();
  const auto present = [](const Result<double>& number) -> Result<std::optional<double>> {
    return number ? Result<std::optional<double>>(*number) : number.error();
  };
  const auto number = use == ColumnUse::words ? std::nullopt : csv_number(field, options_);
  // Of the words for it only those of one's own may be numbers, such as -999.
  if ((!number || options_.missing_words_size() > 0) && is_missing(field, use, options_)) {
    if (refused) {
      return wrong(row,
                   column,
                   concat(field.empty() ? "the field is empty"
                                        : csv_shown(field) + " stands for what is not known",
                          "; data.csv.missing says what becomes of that",
                          classes && !field.empty()
                              ? ", and if it is a class, data.csv.missing_words other words"
                              : ""));
    }
    return use == ColumnUse::words && options_.missing() != proto::Csv::drop
               ? present(word(row, column, kMissingWord, kWordsMax))
               : std::optional<double>();
  }
  if (use == ColumnUse::words) {
    return present(word(row, column, field, kWordsMax));
  }
  if (classes && number && *number != std::floor(*number)) {
    return wrong(row,
                 column,
                 concat(csv_shown(field),
                        " is no class: expected whole numbers or words, or "
                        "data.csv.values=true, which predicts numbers"));
  }
  if (classes) {
    return present(word(row, column, field, kClassesMax));
  }
  if (!number) {
    return wrong(row, column, csv_shown(field) + " is not a number that float32 can hold");
  }
  if (use == ColumnUse::number && std::ranges::count(kStandIns, *number) > 0) {
    stand_ins_[{column, *number}].emplace(field);
  }
  return number;
}

Result<void> CsvLoader::add_row(const CsvRow& row, CsvTable& table) {
  TROUPE_TRY(columns_.check_row(row, without_target_));
  const std::size_t fields = columns_.uses.size() - (without_target_ ? 1 : 0);
  // First of all, so that the words and numbers of a row that is left out do not count.
  for (std::size_t column = 0; column < fields && options_.missing() != proto::Csv::refuse;
       ++column) {
    const bool needed =
        is_used(column) ? options_.missing() == proto::Csv::drop : column == target_;
    if (needed && is_missing(row.fields[column], columns_.uses[column], options_)) {
      ++dropped_;
      return {};
    }
  }
  std::vector<double> marks;
  double target = 0;
  for (std::size_t column = 0; column < fields; ++column) {
    if (columns_.uses[column] == ColumnUse::left_out) {
      continue;
    }
    const auto number = cell(row, column);
    TROUPE_TRY(number);
    if (column == target_) {
      target = number->value_or(0);
      continue;
    }
    if (options_.missing() == proto::Csv::token && columns_.uses[column] == ColumnUse::number) {
      marks.push_back(*number ? 0 : 1);
    }
    filled_ += *number ? 0 : 1;
    table.cells.push_back(number->value_or(std::nan("")));
  }
  table.cells.insert(table.cells.end(), marks.begin(), marks.end());
  table.targets.push_back(target);
  table.lines.push_back(row.line);
  return {};
}

/// From the first two lines of the file of training samples, and where they have no number, from more of them.
Result<void> CsvLoader::learn_columns(std::string_view text) {
  CsvReader reader = this->reader(text);
  CsvRow row;
  std::vector<std::vector<std::string>> lines(2);  // a row's fields are gone with the next one
  for (auto& line : lines) {
    const auto more = reader.next(row);
    TROUPE_TRY(more);
    if (*more) {
      line.assign(row.fields.begin(), row.fields.end());
    }
  }
  if (lines[0].empty()) {
    return Error{ErrorKind::data, "it holds no line"};
  }
  if (lines[1].empty() && !prepared_ && options_.header() != proto::Csv::absent) {
    return Error{ErrorKind::data, "it holds one line, and no sample below the columns' names"};
  }
  const auto columns_of = [&](const proto::Csv& options, bool without_target) {
    return csv_columns(options,
                       {lines[0].begin(), lines[0].end()},
                       {lines[1].begin(), lines[1].end()},
                       separator_,
                       without_target);
  };
  const auto& categories = options_.categories();
  const bool found = std::find(categories.begin(), categories.end(), "auto") != categories.end();
  // Numbers of columns count the target, so where it was is tried, unless that is known.
  proto::Csv options = prepared_ ? without_absent(lines[0]) : options_;
  if (options.header() == proto::Csv::detect) {
    if (options.comment().empty() && begins_with_comments(this->reader(text))) {
      return Error{ErrorKind::data,
                   "its first line begins with #; lines that do are passed over with --set "
                   "data.csv.comment=#"};
    }
    if (const auto header = find_header(text, lines[0], lines[1])) {
      options.set_header(*header ? proto::Csv::present : proto::Csv::absent);
    }
  }
  const proto::Csv with_header = options;
  for (std::size_t place = 0; prepared_ && !without_target_ && place <= lines[0].size() + 1;
       ++place) {
    if (place > 0) {
      options.set_target(std::to_string(place));
    }
    if (auto columns = columns_of(options, true)) {
      columns_ = *std::move(columns);
      without_target_ = fits_without_target();
    }
  }
  if (!without_target_) {
    auto columns = columns_of(with_header, false);
    // Where no line names the columns, one that is left out by its name may be any of them, or none.
    const bool unclear =
        columns && !columns->header && with_header.leave_out_size() < options_.leave_out_size();
    if (!columns || unclear) {
      const Error error =
          !columns && columns_.uses.empty() ? columns.error() : other_columns(lines[0].size());
      columns_ = {};
      return error;
    }
    columns_ = *std::move(columns);
  }
  words_.resize(columns_.uses.size());
  const auto target = std::find(columns_.uses.begin(), columns_.uses.end(), ColumnUse::target);
  target_ = static_cast<std::size_t>(target - columns_.uses.begin());
  if (prepared_) {
    take_words_found();
  } else if (found) {
    find_categories(this->reader(text), options_, columns_);
  }
  return prepared_ ? take_words(lines[0].size()) : Result<void>();
}

/// Once the training samples have been read.
void CsvLoader::learn_words(CsvTable& table) {
  for (std::size_t column = 0; column < words_.size(); ++column) {
    if (is_used(column)) {
      widths_.push_back(words_[column].size());
    }
  }
  widths_.resize(widths_.size() + marks());
  sort_words(table);
  learnt_ = true;
}

/// That the first line of the file of test samples names the same columns.
Result<void> CsvLoader::check_header(const CsvRow& row) const {
  const auto names = columns_.names.begin() + (columns_.row_names ? 1 : 0);
  const bool same = std::equal(row.fields.begin(), row.fields.end(), names, columns_.names.end());
  return same ? Result<void>()
              : data_error("line {}: it does not name the columns of the training samples' file",
                           row.line);
}

Result<void> CsvLoader::read_rows(std::string_view text, CsvTable& table) {
  const bool known = !columns_.uses.empty();
  TROUPE_TRY(known ? Result<void>() : learn_columns(text));
  CsvReader reader = this->reader(text);
  auto read = read_rows(reader, columns_.header, table);
  return read || prepared_ ? read : explained(read.error(), text);
}

Result<void> CsvLoader::read_rows(CsvReader& reader, bool header, CsvTable& table) {
  CsvRow row;
  for (;; header = false) {
    const auto more = reader.next(row);
    TROUPE_TRY(more);
    if (!*more) {
      return {};
    }
    TROUPE_TRY(header ? check_header(row) : add_row(row, table));
  }
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
    at += is_used(column) ? 1 : 0;
  }
}

}  // namespace troupe
