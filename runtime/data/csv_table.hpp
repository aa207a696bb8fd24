// What a CSV file holds: numbers, and words by their numbers.
#pragma once

#include "kernels/result.hpp"
#include "runtime/data/csv_columns.hpp"
#include "runtime/data/csv_reader.hpp"
#include "runtime/data/preparation.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// Words and their numbers: in the order in which they come, then in that of the sorted words.
class WordNumbers {
 public:
  WordNumbers() = default;

  /// Words that are numbered as they come.
  explicit WordNumbers(const std::vector<std::string>& words) {
    for (const std::string& word : words) {
      add(word);
    }
  }

  /// By number.
  std::vector<std::string> words() const;

  std::size_t size() const { return numbers_.size(); }

  std::optional<std::size_t> find(std::string_view word) const {
    const auto at = numbers_.find(word);
    return at == numbers_.end() ? std::nullopt : std::optional(at->second);
  }

  std::size_t add(std::string_view word) {
    return numbers_.emplace(std::string(word), numbers_.size()).first->second;
  }

  /// Numbers the words as they sort, as numbers where all are: each old number's new one.
  std::vector<std::size_t> sort();

 private:
  std::map<std::string, std::size_t, std::less<>> numbers_;
};

/// The samples of a file; of words, their numbers.
struct CsvTable {
  // (rows, used columns); a number that is missing is NaN until it is filled in
  std::vector<double> cells;
  std::vector<double> targets;      // (rows)
  std::vector<std::int64_t> lines;  // (rows), of the file

  std::int64_t rows() const { return static_cast<std::int64_t>(targets.size()); }

  /// Puts the means of `scales`, one a used column at least, where numbers are missing.
  void fill(const std::vector<ColumnScale>& scales);
};

/// What a field is written as that is missing in a column of words.
inline constexpr std::string_view kMissingWord = "(missing)";

/// Numbers by which many write that nothing is known.
inline constexpr std::array kStandIns{-9.0, -99.0, -999.0, -9999.0, 99.0, 999.0, 9999.0, 99999.0};

/// The columns, without the target, of the table that weights were trained on: "a", "b" and 7 more.
std::string trained_columns_told(const Preparation& prepared, const proto::Csv& options);

/// Reads the file of training samples, and then that of test samples, which has the same columns.
class CsvLoader {
 public:
  /// Of options that outlive this, and so does `prepared`, whose words are then the only ones; null: those of
  /// the training samples.
  CsvLoader(const proto::Csv& options, const Preparation* prepared)
      : options_(options), prepared_(prepared) {}

  /// Missing numbers are NaN. Error (data) with path, line and column; (usage) where an option names no column.
  Result<CsvTable> read(const std::string& path);

  /// Reads the file in blocks of about so many bytes, so that memory does not grow with it: `take` gets the rows of each,
  /// with words as they are known so far. Error as read()'s, or that of `take`.
  Result<void> walk(const std::string& path,
                    std::size_t block,
                    const std::function<Result<void>(CsvTable&)>& take);

  /// Once all rows have been walked over: numbers the words for good. A second walk() has these numbers.
  void finish_words();

  /// 0 where numbers are to be predicted.
  std::size_t classes() const;

  /// By label; empty where numbers are to be predicted.
  std::vector<std::string> class_names() const;

  const CsvColumns& columns() const { return columns_; }

  /// Rows that were left out, and numbers that are to be filled in, because something is missing.
  std::int64_t dropped() const { return dropped_; }

  std::int64_t filled() const { return filled_; }

  /// How one of kStandIns is written in a column of numbers, in all ways that have come.
  std::vector<std::string> written(std::size_t column, double stand_in) const;

  char separator() const { return separator_; }

  /// Rows to be predicted, which have no target.
  bool without_target() const { return without_target_; }

  /// Of each used column; empty for one of numbers. With data.csv.missing=token the marks of columns of numbers are behind
  /// all others, here as in cells.
  std::vector<std::vector<std::string>> column_words() const;

  /// Names of the used columns, as UTF-8; empty where the file names none.
  std::vector<std::string> column_names() const;

  /// Of each used column: how many words it has; 0 for one of numbers.
  const std::vector<std::size_t>& widths() const { return widths_; }

 private:
  Result<void> read_rows(std::string_view text, CsvTable& table);
  Result<void> read_rows(CsvReader& reader, bool header, CsvTable& table);
  Result<void> learn_columns(std::string_view text);
  std::optional<bool> find_header(std::string_view text,
                                  const std::vector<std::string>& first,
                                  const std::vector<std::string>& second) const;
  bool fits_without_target();
  void take_words_found();
  proto::Csv without_absent(const std::vector<std::string>& first) const;
  Error other_columns(std::size_t fields) const;
  Result<void> check_header(const CsvRow& row) const;
  Result<void> add_row(const CsvRow& row, CsvTable& table);
  Result<std::optional<double>> cell(const CsvRow& row, std::size_t column);
  Result<double> word(const CsvRow& row,
                      std::size_t column,
                      std::string_view field,
                      std::size_t words_max);
  Result<void> check_text(std::string_view text, const std::string& path);
  Error explained(Error error, std::string_view text) const;
  std::size_t marks() const;

  bool is_used(std::size_t column) const {
    return columns_.uses[column] == ColumnUse::number || columns_.uses[column] == ColumnUse::words;
  }

  CsvReader reader(std::string_view text) const;

  Error wrong(const CsvRow& row, std::size_t column, const std::string& what) const;
  Result<void> take_words(std::size_t fields);
  void learn_words(CsvTable& table);
  void sort_words(CsvTable& table);

  const proto::Csv& options_;
  const Preparation* prepared_;
  CsvColumns columns_;              // of the file of training samples
  std::vector<WordNumbers> words_;  // (columns)
  std::vector<std::size_t> widths_;
  std::map<std::pair<std::size_t, double>, std::set<std::string, std::less<>>>
      stand_ins_;  // by column, too
  std::size_t target_ = 0;
  char separator_ = '\0';  // 0 until a text has been seen
  std::int64_t dropped_ = 0;
  std::int64_t filled_ = 0;
  bool without_target_ = false;  // the target's column is behind all those of the file
  bool learnt_ = false;          // the words are known: others are refused
};

}  // namespace troupe
