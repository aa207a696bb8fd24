#include "experiment/data.pb.h"
#include "kernels/wording.hpp"
#include "runtime/data/csv_survey.hpp"
#include "runtime/data/csv_table.hpp"
#include "runtime/data/preparation.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {
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
    doubts.push_back(values_doubted(classes, rows, "csv"));
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

/// The setting of data.csv.categories without columns that are to be left out; "" where it names none of them.
std::string categories_without(const proto::Csv& options,
                               const CsvColumns& columns,
                               const std::map<std::string, std::size_t>& left_out) {
  std::vector<std::string> rest;
  for (const std::string& asked : options.categories()) {
    const auto column = csv_column(columns, "categories", asked);
    if (!column || !left_out.contains(columns.key(*column))) {
      rest.push_back(asked);
    }
  }
  return static_cast<int>(rest.size()) == options.categories_size() ? ""
         : rest.empty() ? " --set data.csv.categories=[]"
                        : csv_list("categories", {}, rest);
}

void doubt_columns(const proto::Csv& options,
                   const CsvLoader& loader,
                   const CsvTable& table,
                   std::vector<std::string>& doubts) {
  const CsvColumns& columns = loader.columns();
  const std::size_t used = loader.widths().size();
  std::vector<std::string> found;
  std::map<std::string, std::size_t> naming;  // of those: how many words it has
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
    if (use == ColumnUse::words && names_rows(loader.widths()[at], table.rows())) {
      found.push_back(columns.key(column));
      naming[columns.key(column)] = loader.widths()[at];
    }
    at += use == ColumnUse::number || use == ColumnUse::words ? 1 : 0;
    const std::string name = columns.header ? columns.names[column] : "";
    if (use != ColumnUse::left_out && !name.empty() && twins.insert(name).second &&
        std::ranges::count(columns.names, name) > 1) {
      doubts.push_back(concat("several columns are called ", csv_shown(name)));
    }
  }
  found = left_without(columns, std::move(found), 0);
  const std::string settings =
      categories_without(options, columns, naming) +
      csv_list("leave_out", {options.leave_out().begin(), options.leave_out().end()}, found);
  for (const std::string& key : found) {
    const auto words = naming.find(key);
    doubts.push_back(fill_in("column {} {}:{}",
                             key,
                             words == naming.end()
                                 ? "only counts the rows, and the order of a file tells nothing of "
                                   "new samples"
                                 : fill_in("has {} different words in {} rows, and so many tell "
                                           "nothing of new samples",
                                           words->second,
                                           table.rows()),
                             settings));
  }
}

/// The one of kStandIns which lies apart from all others of its column; 0: there is none.
double stand_in(std::vector<double> cells) {
  std::erase_if(cells, [](double cell) { return std::isnan(cell); });
  for (const double usual : kStandIns) {
    const auto count = std::ranges::count(cells, usual);
    if (count < 2 || 2 * count >= std::ssize(cells)) {
      continue;
    }
    auto others = cells;
    std::erase(others, usual);
    const auto [least, most] = std::ranges::minmax(others);
    if (std::max(least - usual, usual - most) > most - least && most > least) {
      return usual;
    }
  }
  return 0;
}

void doubt_numbers(const proto::Csv& options,
                   const CsvLoader& loader,
                   const CsvTable& table,
                   std::vector<std::string>& doubts) {
  const CsvColumns& columns = loader.columns();
  const std::size_t used = loader.widths().size();
  std::vector<std::string> known(options.missing_words().begin(), options.missing_words().end());
  if (known.empty() && loader.filled() + loader.dropped() > 0) {
    known.assign(kMissingWords.begin(), kMissingWords.end());
  }
  std::size_t at = 0;
  for (std::size_t column = 0; column < columns.uses.size(); ++column) {
    const ColumnUse use = columns.uses[column];
    if (use == ColumnUse::number) {
      std::vector<double> cells;
      for (std::size_t cell = at; cell < table.cells.size(); cell += used) {
        cells.push_back(table.cells[cell]);
      }
      if (const double apart = stand_in(std::move(cells)); apart != 0) {
        doubts.push_back(
            fill_in("{} has {} in several rows, apart from all others; if it stands for what "
                    "is not known:{}{}",
                    columns.called(column),
                    apart,
                    options.missing() == proto::Csv::refuse ? " --set data.csv.missing=mean" : "",
                    csv_list("missing_words", known, loader.written(column, apart))));
      }
    }
    at += use == ColumnUse::number || use == ColumnUse::words ? 1 : 0;
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
  doubt_numbers(options, loader, table, to.doubts);
}

}  // namespace troupe
