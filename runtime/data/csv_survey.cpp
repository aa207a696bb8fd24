#include "runtime/data/csv_survey.hpp"

#include "experiment/data.pb.h"
#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "runtime/data/csv_table.hpp"
#include "runtime/data/preparation.hpp"
#include "runtime/record/json.hpp"
#include "runtime/record/shell_word.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {
namespace {

constexpr std::size_t kDifferentMax = 4096;
constexpr std::size_t kFewWords = 100;
constexpr std::size_t kOddWords = 2;

struct ColumnSurvey {
  std::int64_t missing = 0;
  std::int64_t odd = 0;                            // fields that are no numbers and not missing
  std::string odd_first{};                         // where the first of them is
  std::int64_t counted = 0;                        // fields that are numbers
  std::set<std::string> unknown{};                 // different words for what is missing
  std::int64_t fractions = 0;                      // numbers that are not whole
  std::set<std::string, std::less<>> different{};  // fields that are no numbers and not missing
  std::set<double> numbers{};                      // different ones of the target
  double first = 0;
  bool counts = true;   // 0, 1, 2, ... more than the first
  std::string known{};  // the first field that is not missing
  bool varies = false;  // another one is not the same

  void see(std::string_view field) {
    known = known.empty() ? field : known;
    varies = varies || field != known;
  }
};

/// Of every column, and how many rows there are. Error (data): what is wrong with a line as a whole.
Result<std::pair<std::vector<ColumnSurvey>, std::int64_t>> survey(CsvReader& reader,
                                                                  const proto::Csv& options,
                                                                  const CsvColumns& columns) {
  std::vector<ColumnSurvey> all(columns.uses.size());
  std::int64_t rows = 0;
  CsvRow row;
  for (bool header = columns.header;; header = false) {
    const auto more = reader.next(row);
    TROUPE_TRY(more);
    if (!*more) {
      return std::pair(std::move(all), rows);
    }
    if (header) {
      continue;
    }
    TROUPE_TRY(columns.check_row(row));
    ++rows;
    for (std::size_t column = 0; column < all.size(); ++column) {
      const std::string_view field = row.fields[column];
      ColumnSurvey& here = all[column];
      if (columns.uses[column] == ColumnUse::left_out) {
        continue;
      }
      const bool own = options.missing_words_size() > 0 && csv_missing(field, options);
      if (const auto number = own ? std::nullopt : csv_number(field, options)) {
        here.see(field);
        ++here.counted;
        here.fractions += *number == std::floor(*number) ? 0 : 1;
        here.first = rows == 1 ? *number : here.first;
        here.counts = here.counts && *number == here.first + static_cast<double>(rows - 1);
        if (columns.uses[column] == ColumnUse::target && here.numbers.size() <= kDifferentMax) {
          here.numbers.insert(*number);
        }
      } else if (csv_missing(field, options)) {
        here.missing += columns.uses[column] != ColumnUse::words || field.empty() ? 1 : 0;
        if (!field.empty() && here.unknown.size() <= kFewWords) {
          here.unknown.emplace(field);
        }
      } else {
        here.see(field);
        if (here.odd++ == 0) {
          here.odd_first = concat(csv_shown(field), " in line ", row.line);
        }
        if (here.different.size() <= kDifferentMax) {
          here.different.emplace(field);
        }
      }
    }
  }
}

/// Whether words in so few of a column's fields stand for numbers that are not known: no digit is in them, or more than
/// float32 can hold.
bool are_odd(const ColumnSurvey& column) {
  return column.odd * 2 < column.counted && column.different.size() <= kOddWords &&
         std::ranges::all_of(column.different, [](const std::string& word) {
           char* end = nullptr;
           const bool number = std::isinf(std::strtod(word.c_str(), &end)) ||
                               std::abs(std::strtod(word.c_str(), &end)) > 1e38;
           const bool legible =
               std::ranges::none_of(word, [](unsigned char c) { return std::iscntrl(c) != 0; });
           return (number && *end == '\0') ||
                  (legible && word.find_first_of("0123456789") == word.npos);
         });
}

/// Whether a target is of numbers to predict, beside which a few words may stand.
bool holds_values(const ColumnSurvey& target, std::int64_t rows) {
  return target.different.empty()
             ? target.fractions > 0 || are_values(std::ssize(target.numbers), rows)
             : target.fractions > 0 && target.odd * 2 < target.counted;
}

/// As many as there are columns: none of them.
std::size_t target_of(const CsvColumns& columns) {
  return static_cast<std::size_t>(std::ranges::find(columns.uses, ColumnUse::target) -
                                  columns.uses.begin());
}

/// Of a target of numbers in which fields are none, whatever is set: ", but for "6.2x" in line 51, ...". "" of others.
std::string to_be_mended(const std::vector<ColumnSurvey>& all,
                         const CsvColumns& columns,
                         std::int64_t rows,
                         const proto::Csv& options,
                         char separator) {
  const std::size_t column = target_of(columns);
  const ColumnSurvey& target = all[column < all.size() ? column : 0];
  if (column == all.size() || target.odd == 0 || !holds_values(target, rows) || are_odd(target) ||
      !csv_number_setting({target.different.begin(), target.different.end()}, options, separator)
           .empty()) {
    return "";
  }
  return fill_in(", but for {}{} {}, which {} to be mended",
                 target.odd_first,
                 target.odd == 1 ? "," : concat(" and ", target.odd - 1, " more of"),
                 columns.called(column),
                 target.odd == 1 ? "has" : "have");
}

/// An element of a list in a setting.
std::string element(const std::string& word) {
  return word.find_first_of(",[]\"'\\") == word.npos ? word : json_string(word);
}

std::vector<std::string> names_of(const google::protobuf::RepeatedPtrField<std::string>& names) {
  return {names.begin(), names.end()};
}

}  // namespace

std::string csv_list(const char* key,
                     const std::vector<std::string>& set,
                     const std::vector<std::string>& more) {
  std::string text;
  for (const auto* names : {&set, &more}) {
    for (const std::string& name : *names) {
      text += (text.empty() ? "" : ",") + element(name);
    }
  }
  const std::string setting = concat("data.csv.", key, "=[", text, "]");
  return more.empty() ? "" : " --set " + (shell_word(text) == text ? setting : shell_word(setting));
}

std::vector<std::string> left_without(const CsvColumns& columns,
                                      std::vector<std::string> counting,
                                      std::size_t others) {
  const auto used = std::count_if(columns.uses.begin(), columns.uses.end(), [](ColumnUse use) {
    return use == ColumnUse::number || use == ColumnUse::words;
  });
  return counting.size() + others < static_cast<std::size_t>(used) ? std::move(counting)
                                                                   : std::vector<std::string>();
}

void find_categories(CsvReader reader, const proto::Csv& options, CsvColumns& columns) {
  const auto found = survey(reader, options, columns);
  for (std::size_t column = 0; found && column < found->first.size(); ++column) {
    if (columns.uses[column] == ColumnUse::number && !found->first[column].different.empty()) {
      columns.uses[column] = ColumnUse::words;
    }
  }
}

bool begins_with_comments(CsvReader reader) {
  CsvRow row;
  std::size_t width = 0;
  for (std::int64_t rows = 0;; ++rows) {
    const auto more = reader.next(row);
    if (!more || !*more) {
      return false;
    }
    if (!row.fields[0].starts_with('#')) {
      return rows > 1 || (rows == 1 && row.fields.size() != width);
    }
    if (rows > 0 && row.fields.size() != width) {
      return true;
    }
    width = row.fields.size();
  }
}

std::optional<bool> header_by_words(CsvReader reader, const proto::Csv& options) {
  constexpr std::size_t kRows = 200;
  constexpr std::size_t kRowsMin = 8;
  CsvRow row;
  const auto next = [&] {
    const auto more = reader.next(row);
    return more && *more;
  };
  const auto is_number = [&](std::string_view field) {
    return csv_number(field, options).has_value();
  };
  if (!next() || std::ranges::any_of(row.fields, is_number)) {
    return std::nullopt;
  }
  const std::vector<std::string> first(row.fields.begin(), row.fields.end());
  std::vector<std::set<std::string, std::less<>>> below(first.size());
  std::size_t rows = 0;
  while (rows < kRows && next()) {
    if (row.fields.size() != first.size() || std::ranges::any_of(row.fields, is_number)) {
      return std::nullopt;
    }
    if (std::equal(first.begin(), first.end(), row.fields.begin())) {
      continue;  // the same sample, or the names of a file that was joined to this one
    }
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (4 * below[i].size() <= kRows) {  // with more words they do not repeat enough
        below[i].emplace(row.fields[i]);
      }
    }
    ++rows;
  }
  std::size_t seen = 0;
  std::size_t unseen = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (4 * below[i].size() <= rows) {
      ++(below[i].contains(first[i]) ? seen : unseen);
    }
  }
  // A single word that does not come again may be a class, where a table is sorted by it.
  const bool named = seen == 0 && unseen > 1;
  const bool sampled = seen > 0 && unseen == 0;
  return rows >= kRowsMin && (named || sampled) ? std::optional(named) : std::nullopt;
}

namespace {

/// Settings where all fields of the target are the same: the last column in whose place something can be told takes its
/// place.
Result<std::string> another_target(const CsvReader& reader,
                                   const proto::Csv& options,
                                   CsvColumns columns,
                                   char separator,
                                   std::size_t target,
                                   const std::vector<ColumnSurvey>& all,
                                   std::int64_t rows) {
  proto::Csv other = options;
  other.add_leave_out(columns.key(target));
  const std::string left =
      csv_list("leave_out", names_of(options.leave_out()), {columns.key(target)});
  columns.uses[target] = ColumnUse::left_out;
  for (std::size_t column = all.size(); column-- > 0;) {
    const bool names = 2 * std::ssize(all[column].different) > rows;
    if (columns.uses[column] == ColumnUse::number && all[column].varies && !names) {
      columns.uses[column] = ColumnUse::target;
      const auto settings = csv_settings(reader, other, columns, separator);
      TROUPE_TRY(settings);
      const std::string& rest = *settings;
      const bool listed = rest.find("leave_out=") != rest.npos;
      return fill_in("--set data.csv.target={}{}{}{} ({} {})",
                     columns.key(column),
                     listed ? "" : left,
                     rest.empty() ? "" : " ",
                     rest,
                     columns.called(target),
                     all[target].known.empty()  ? "is empty"
                     : all[target].missing == 0 ? "is the same in all rows"
                                                : concat("is ",
                                                         csv_shown(all[target].known),
                                                         " or nothing; to predict it, write a "
                                                         "word where it is empty"));
    }
  }
  return std::string();
}

/// "; or, to predict column "kind", with --set ...": of few words, as the first column is where labels stand first.
std::string or_predicting(std::size_t column,
                          const CsvReader& reader,
                          proto::Csv options,
                          CsvColumns columns,
                          char separator) {
  options.set_target(columns.key(column));
  std::ranges::replace(columns.uses, ColumnUse::target, ColumnUse::number);
  columns.uses[column] = ColumnUse::target;
  const auto rest = csv_settings(reader, options, columns, separator);
  return fill_in("; or, to predict {}, with --set data.csv.target={}{}{}",
                 columns.called(column),
                 columns.key(column),
                 rest && !rest->empty() ? " " : "",
                 rest ? *rest : "");
}

}  // namespace

Result<std::string> csv_settings(CsvReader reader,
                                 const proto::Csv& options,
                                 const CsvColumns& columns,
                                 char separator) {
  const CsvReader begin = reader;
  const auto found = survey(reader, options, columns);
  TROUPE_TRY(found);
  const auto& [all, rows] = *found;
  const std::size_t target = target_of(columns);
  if (target < all.size() && !all[target].varies && rows > 1) {
    return another_target(begin, options, columns, separator, target, all, rows);
  }
  std::vector<std::string> words;
  std::vector<std::string> useless;
  std::vector<std::string> counting;
  std::vector<std::string> units;
  std::set<std::string> more;
  std::set<std::string> odd;  // words that stand where a number is not known
  std::set<std::string> known(options.missing_words().begin(), options.missing_words().end());
  for (std::size_t column = 0; column < all.size(); ++column) {
    const ColumnSurvey& here = all[column];
    const ColumnUse use = columns.uses[column];
    known.insert(here.unknown.begin(), here.unknown.end());
    const bool values = use == ColumnUse::target && (options.values() || holds_values(here, rows));
    const bool numbers = use == ColumnUse::number || values;
    if (here.missing > 0 && options.missing() == proto::Csv::refuse) {
      more.insert(" --set data.csv.missing=mean");
    }
    if (values && !options.values()) {
      more.insert(" --set data.csv.values=true");
    }
    if (use == ColumnUse::number && here.counts && rows >= kCounting && here.different.empty() &&
        here.missing == 0) {
      counting.push_back(columns.key(column));
    }
    if (!numbers || here.different.empty()) {
      continue;
    }
    const CsvNumberSetting setting =
        csv_number_setting({here.different.begin(), here.different.end()}, options, separator);
    if (!setting.digits.empty()) {
      more.insert(" --set " + setting.digits);
    }
    if (!setting.unit.empty() &&
        std::find(units.begin(), units.end(), setting.unit) == units.end()) {
      units.push_back(setting.unit);
    }
    if (!setting.empty()) {
      continue;
    }
    if (are_odd(here)) {
      odd.insert(here.different.begin(), here.different.end());
      if (options.missing() == proto::Csv::refuse) {
        more.insert(" --set data.csv.missing=mean");
      }
      continue;
    }
    if (use == ColumnUse::target) {
      if (!holds_values(here, rows)) {
        more.insert(" --set data.csv.values=false");
      }
      continue;
    }
    const std::size_t different = here.different.size();
    const bool few = different <= kFewWords && !names_rows(different, rows) &&
                     !std::ranges::all_of(here.different, csv_date);
    (few ? words : useless).push_back(columns.key(column));
  }
  counting = left_without(columns, std::move(counting), useless.size());
  useless.insert(useless.begin(), counting.begin(), counting.end());
  std::string text =
      csv_list("categories", names_of(options.categories()), words) +
      csv_list("leave_out", names_of(options.leave_out()), useless) +
      csv_list("units", names_of(options.units()), units) +
      csv_list("missing_words", {known.begin(), known.end()}, {odd.begin(), odd.end()});
  text += joined(more, "");
  text += text.empty() ? "" : to_be_mended(all, columns, rows, options, separator);
  const bool numbers_last = target < all.size() && all[target].fractions > 0;
  return text.substr(std::min<std::size_t>(text.size(), 1)) +
         (options.target().empty() && numbers_last && words == std::vector{columns.key(0)}
              ? or_predicting(0, begin, options, columns, separator)
              : "");
}

}  // namespace troupe
