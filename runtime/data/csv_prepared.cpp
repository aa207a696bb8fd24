// How a CSV file is read that is shown to weights: its columns, words and classes are those that they were trained on.
#include "experiment/data.pb.h"
#include "kernels/numeral.hpp"
#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "runtime/data/csv_table.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

constexpr std::size_t kNamesTold = 20;

/// "a", "b" and 7 more; of columns without names, how many there are.
std::string listed(const std::vector<std::string>& names, std::size_t columns) {
  if (names.empty()) {
    return concat(columns, " columns without names");
  }
  const std::size_t told = std::min(names.size(), kNamesTold);
  return joined(std::vector(names.begin(), names.begin() + std::ptrdiff_t(told)),
                ", ",
                [](const std::string& name) { return csv_shown(name); }) +
         (names.size() > told ? concat(" and ", names.size() - told, " more") : "");
}

}  // namespace

std::string trained_columns_told(const Preparation& prepared, const proto::Csv& options) {
  std::vector<std::string> names = prepared.columns;
  if (options.missing() == proto::Csv::token) {  // its marks are no columns of a file
    std::erase_if(names, [&](const std::string& name) {
      constexpr std::string_view kMark = " is missing";
      return name.ends_with(kMark) &&
             std::ranges::count(prepared.columns, name.substr(0, name.size() - kMark.size())) > 0;
    });
  }
  return listed(names, prepared.x.size());
}

/// The options without the columns to leave out that the file, of this first line, does not have: nobody misses them. Which
/// columns are of words is known from the weights, also where the file does not name its columns.
proto::Csv CsvLoader::without_absent(const std::vector<std::string>& first) const {
  proto::Csv options = options_;
  auto& left_out = *options.mutable_leave_out();
  left_out.erase(std::remove_if(left_out.begin(),
                                left_out.end(),
                                [&](const std::string& name) {
                                  return !numeral<std::size_t>(name) &&
                                         std::ranges::count(first, name) == 0;
                                }),
                 left_out.end());
  options.clear_categories();
  return options;
}

/// What is said where the columns, as many as a line has fields, are not those of the weights.
Error CsvLoader::other_columns(std::size_t fields) const {
  std::vector<std::string> found;
  const auto& left_out = options_.leave_out();
  const bool all =  // what is left out by its number is another column where one is missing
      std::ranges::any_of(left_out,
                          [](const auto& name) { return bool(numeral<std::size_t>(name)); });
  for (std::size_t column = 0; column < columns_.names.size(); ++column) {
    if (all || columns_.uses[column] != ColumnUse::left_out) {
      found.push_back(utf8_name(columns_.names[column]));
    }
  }
  return {ErrorKind::data,
          fill_in("its columns are not those that the weights were trained on: expected {}, in "
                  "this order, and the target where it is known; it has {}",
                  trained_columns_told(*prepared_, options_),
                  listed(found, fields))};
}

/// Whether the columns, without one for the target, are those that the weights were trained on.
bool CsvLoader::fits_without_target() {
  take_words_found();
  const auto used = static_cast<std::size_t>(
      std::count_if(columns_.uses.begin(), columns_.uses.end(), [](ColumnUse use) {
        return use == ColumnUse::number || use == ColumnUse::words;
      }));
  return columns_.header && !prepared_->columns.empty() ? column_names() == prepared_->columns
                                                        : used + marks() == prepared_->words.size();
}

/// Columns of words are those of the weights.
void CsvLoader::take_words_found() {
  std::size_t at = 0;
  for (std::size_t column = 0; column < columns_.uses.size(); ++column) {
    if (is_used(column) && at < prepared_->words.size() && !prepared_->words[at++].empty()) {
      columns_.uses[column] = ColumnUse::words;
    }
  }
}

/// The words that the weights were trained on.
Result<void> CsvLoader::take_words(std::size_t fields) {
  std::size_t at = 0;  // among the used columns
  bool fits = options_.values() == prepared_->classes.empty();
  for (std::size_t column = 0; column < words_.size(); ++column) {
    const ColumnUse use = columns_.uses[column];
    if (use == ColumnUse::target && !options_.values()) {
      words_[column] = WordNumbers(prepared_->classes);
    }
    if (is_used(column)) {
      const auto words =
          at < prepared_->words.size() ? prepared_->words[at] : std::vector<std::string>();
      fits = fits && words.empty() == (use == ColumnUse::number);
      words_[column] = WordNumbers(words);
      widths_.push_back(words.size());
      ++at;
    }
  }
  at += marks();
  widths_.resize(at);
  learnt_ = true;
  const std::vector<std::string> names = column_names();
  const bool nameless = names.empty() || prepared_->columns.empty();  // they cannot be told apart
  return fits && at == prepared_->words.size() && (nameless || names == prepared_->columns)
             ? Result<void>()
             : other_columns(fields);
}

}  // namespace troupe
