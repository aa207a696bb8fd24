#include "runtime/data/csv_survey.hpp"

#include "experiment/data.pb.h"
#include "kernels/wording.hpp"
#include "runtime/data/csv_table.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {
namespace {

constexpr std::size_t kDifferentMax = 4096;
constexpr std::size_t kFewWords = 100;
constexpr std::size_t kClassesSaid = 12;
constexpr std::int64_t kCounting = 8;  // rows, from which on a column that counts them is no chance

struct ColumnSurvey {
  std::int64_t missing = 0;
  std::int64_t fractions = 0;                      // numbers that are not whole
  std::set<std::string, std::less<>> different{};  // fields that are no numbers and not missing
  std::set<double> numbers{};                      // different ones of the target
  double first = 0;
  bool counts = true;  // 0, 1, 2, ... more than the first
};

/// Whether a target of so many different whole numbers is meant as a number.
bool are_values(std::int64_t different, std::int64_t rows) {
  return different > 10 && (different > 50 || 10 * different > rows);
}

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
        here.fractions += *number == std::floor(*number) ? 0 : 1;
        here.first = rows == 1 ? *number : here.first;
        here.counts = here.counts && *number == here.first + static_cast<double>(rows - 1);
        if (columns.uses[column] == ColumnUse::target && here.numbers.size() <= kDifferentMax) {
          here.numbers.insert(*number);
        }
      } else if (csv_missing(field, options)) {
        here.missing += columns.uses[column] != ColumnUse::words || field.empty() ? 1 : 0;
      } else if (here.different.size() <= kDifferentMax) {
        here.different.emplace(field);
      }
    }
  }
}

/// "--set data.csv.KEY=[a,b]", of what is set already and what comes to it.
template <class Names>
std::string list_setting(const char* key, const Names& set, const std::vector<std::string>& more) {
  std::string text;
  for (const std::string& name : set) {
    text += (text.empty() ? "" : ",") + name;
  }
  for (const std::string& name : more) {
    text += (text.empty() ? "" : ",") + name;
  }
  return more.empty() ? "" : concat(" --set data.csv.", key, "=[", text, "]");
}

/// Of columns that only count the rows, those to leave out: none where nothing would be left to learn from.
std::vector<std::string> left_without(const CsvColumns& columns,
                                      std::vector<std::string> counting,
                                      std::size_t others) {
  const auto used = std::count_if(columns.uses.begin(), columns.uses.end(), [](ColumnUse use) {
    return use == ColumnUse::number || use == ColumnUse::words;
  });
  return counting.size() + others < static_cast<std::size_t>(used) ? std::move(counting)
                                                                   : std::vector<std::string>();
}

}  // namespace

void find_categories(CsvReader reader, const proto::Csv& options, CsvColumns& columns) {
  const auto found = survey(reader, options, columns);
  for (std::size_t column = 0; found && column < found->first.size(); ++column) {
    if (columns.uses[column] == ColumnUse::number && !found->first[column].different.empty()) {
      columns.uses[column] = ColumnUse::words;
    }
  }
}

namespace {

/// Settings where nothing stands in the column of the target: the last one with something in it takes its place.
Result<std::string> another_target(const CsvReader& reader,
                                   const proto::Csv& options,
                                   CsvColumns columns,
                                   char separator,
                                   std::size_t target,
                                   const std::vector<ColumnSurvey>& all) {
  proto::Csv other = options;
  other.add_leave_out(columns.key(target));
  const std::string left = list_setting("leave_out", options.leave_out(), {columns.key(target)});
  columns.uses[target] = ColumnUse::left_out;
  for (std::size_t column = all.size(); column-- > 0;) {
    if (columns.uses[column] == ColumnUse::number && all[column].missing < all[target].missing) {
      columns.uses[column] = ColumnUse::target;
      const auto settings = csv_settings(reader, other, columns, separator);
      TROUPE_TRY(settings);
      const std::string& rest = *settings;
      const bool listed = rest.find("leave_out=") != rest.npos;
      return fill_in("--set data.csv.target={}{}{}{} (nothing stands in {})",
                     columns.key(column),
                     listed ? "" : left,
                     rest.empty() ? "" : " ",
                     rest,
                     columns.called(target));
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
  const auto target = static_cast<std::size_t>(
      std::find(columns.uses.begin(), columns.uses.end(), ColumnUse::target) -
      columns.uses.begin());
  if (target < all.size() && all[target].missing == rows) {
    return another_target(begin, options, columns, separator, target, all);
  }
  std::vector<std::string> words;
  std::vector<std::string> useless;
  std::vector<std::string> counting;
  std::vector<std::string> units;
  std::set<std::string> more;
  for (std::size_t column = 0; column < all.size(); ++column) {
    const ColumnSurvey& here = all[column];
    const ColumnUse use = columns.uses[column];
    const bool numbers = use == ColumnUse::number || (use == ColumnUse::target && options.values());
    if (here.missing > 0 && options.missing() == proto::Csv::refuse) {
      more.insert(" --set data.csv.missing=mean");
    }
    if (use == ColumnUse::target && !options.values() && here.different.empty() &&
        (here.fractions > 0 || are_values(std::ssize(here.numbers), rows))) {
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
    if (use == ColumnUse::target) {
      more.insert(" --set data.csv.values=false");
      continue;
    }
    const std::size_t different = here.different.size();
    const bool few = different <= kFewWords &&
                     2 * static_cast<std::int64_t>(different) <= rows + 8 &&
                     !std::ranges::all_of(here.different, csv_date);
    (few ? words : useless).push_back(columns.key(column));
  }
  counting = left_without(columns, std::move(counting), useless.size());
  useless.insert(useless.begin(), counting.begin(), counting.end());
  std::string text = list_setting("categories", options.categories(), words) +
                     list_setting("leave_out", options.leave_out(), useless) +
                     list_setting("units", options.units(), units);
  for (const std::string& setting : more) {
    text += setting;
  }
  const bool numbers_last = target < all.size() && all[target].fractions > 0;
  return text.substr(std::min<std::size_t>(text.size(), 1)) +
         (options.target().empty() && numbers_last && words == std::vector{columns.key(0)}
              ? or_predicting(0, begin, options, columns, separator)
              : "");
}

// -- what is told of a table --------------------------------------------------------------------------

namespace {

std::string plural(std::int64_t count, const char* one) {
  const char* const more = std::string_view(one).ends_with('s') ? "es" : "s";
  return concat(count, " ", one, count == 1 ? "" : more);
}

std::string columns_told(const CsvLoader& loader, std::int64_t rows) {
  const CsvColumns& columns = loader.columns();
  std::string words;
  std::string left_out;
  std::int64_t numbers = 0;
  std::size_t used = 0;
  std::size_t target = 0;
  for (std::size_t column = 0; column < columns.uses.size(); ++column) {
    const ColumnUse use = columns.uses[column];
    if (use == ColumnUse::words) {
      words +=
          concat(words.empty() ? "" : ", ", columns.key(column), " (", loader.widths()[used], ")");
    }
    if (use == ColumnUse::left_out) {
      left_out += (left_out.empty() ? "" : ", ") + columns.key(column);
    }
    target = use == ColumnUse::target ? column : target;
    numbers += use == ColumnUse::number ? 1 : 0;
    used += use == ColumnUse::number || use == ColumnUse::words ? 1 : 0;
  }
  const char separator = loader.separator();
  return fill_in("{} of {}{}{}: {} is the target; {} of numbers{}{}",
                 plural(rows, "row"),
                 plural(static_cast<std::int64_t>(columns.uses.size()), "column"),
                 separator == ',' ? ""
                                  : concat(", parted by ",
                                           separator == '\t'  ? "tab"
                                           : separator == ' ' ? "blanks"
                                                              : std::string(1, separator)),
                 columns.header ? "" : ", which the first line does not name",
                 columns.called(target),
                 plural(numbers, "column"),
                 words.empty() ? "" : "; words: " + words,
                 left_out.empty() ? "" : "; left out: " + left_out);
}

std::string classes_told(const std::vector<std::string>& names,
                         const std::vector<std::int64_t>& counts) {
  std::string text = plural(static_cast<std::int64_t>(names.size()), "class") + ":";
  for (std::size_t i = 0; i < std::min(names.size(), kClassesSaid); ++i) {
    text += concat(i == 0 ? " " : ", ", names[i], " (", counts[i], ")");
  }
  return text + (names.size() > kClassesSaid ? ", ..." : "");
}

/// Names that differ only in capitals.
std::string twins_told(const std::vector<std::string>& names) {
  std::set<std::string> seen;
  for (const std::string& name : names) {
    std::string lower = name;
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) {
      return static_cast<char>(std::tolower(c));
    });
    if (!seen.insert(lower).second) {
      return concat(csv_shown(name), " and another class differ in capitals alone");
    }
  }
  return "";
}

void doubt_classes(const std::vector<std::string>& names,
                   const std::vector<std::int64_t>& counts,
                   std::int64_t rows,
                   std::vector<std::string>& doubts) {
  const auto classes = static_cast<std::int64_t>(names.size());
  const bool numbers = std::ranges::all_of(
      names, [](const std::string& name) { return csv_number(name).has_value(); });
  if (numbers && are_values(classes, rows)) {
    doubts.push_back(
        fill_in("the target has {} different whole numbers in {} rows, and each is a class of its "
                "own; to predict it as a number: --set data.csv.values=true",
                classes,
                rows));
  } else if (classes > 10 && 2 * classes > rows) {
    doubts.push_back(concat("the target has ",
                            classes,
                            " different words in ",
                            rows,
                            " rows; another column is predicted by --set data.csv.target=NAME"));
  } else if (const auto rare = std::count(counts.begin(), counts.end(), 1); rare > 0) {
    doubts.push_back(concat(plural(rare, "class"),
                            rare == 1 ? " has" : " have",
                            " one row each: it is either for training or for tests"));
  }
  if (std::string twins = twins_told(names); !twins.empty()) {
    doubts.push_back(std::move(twins));
  }
}

void doubt_columns(const proto::Csv& options,
                   const CsvLoader& loader,
                   const CsvTable& table,
                   std::vector<std::string>& doubts) {
  const CsvColumns& columns = loader.columns();
  const std::size_t used = loader.widths().size();
  std::vector<std::string> found;
  std::set<std::string> twins;
  std::size_t at = 0;
  for (std::size_t column = 0; column < columns.uses.size(); ++column) {
    const ColumnUse use = columns.uses[column];
    const double first = use == ColumnUse::number && !table.cells.empty() ? table.cells[at] : 0;
    bool counting = use == ColumnUse::number && table.rows() >= kCounting;
    for (std::int64_t row = 0; counting && row < table.rows(); ++row) {
      counting = table.cells[static_cast<std::size_t>(row) * used + at] ==
                 first + static_cast<double>(row);
    }
    if (counting) {
      found.push_back(columns.key(column));
    }
    at += use == ColumnUse::number || use == ColumnUse::words ? 1 : 0;
    const std::string name = columns.header ? columns.names[column] : "";
    if (use != ColumnUse::left_out && !name.empty() && twins.insert(name).second &&
        std::ranges::count(columns.names, name) > 1) {
      doubts.push_back(concat("several columns are called ", csv_shown(name)));
    }
  }
  found = left_without(columns, std::move(found), 0);
  for (const std::string& key : found) {
    doubts.push_back(fill_in(
        "column {} only counts the rows, and the order of a file tells nothing of new samples:{}",
        key,
        list_setting("leave_out", options.leave_out(), found)));
  }
}

}  // namespace

void tell_csv(const proto::Csv& options,
              const CsvLoader& loader,
              const CsvTable& table,
              Preparation& to) {
  to.understood.push_back(columns_told(loader, table.rows()));
  if (loader.dropped() > 0) {
    to.understood.push_back(plural(loader.dropped(), "row") +
                            " left out, in which something is missing");
  }
  if (loader.filled() > 0) {
    to.understood.push_back(plural(loader.filled(), "number") +
                            " missing: the column's mean stands there");
  }
  if (!options.values()) {
    const auto names = loader.class_names();
    std::vector<std::int64_t> counts(names.size());
    for (const double label : table.targets) {
      ++counts[static_cast<std::size_t>(label)];
    }
    to.understood.push_back(classes_told(names, counts));
    doubt_classes(names, counts, table.rows(), to.doubts);
  }
  doubt_columns(options, loader, table, to.doubts);
}

}  // namespace troupe
