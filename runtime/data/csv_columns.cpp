#include "runtime/data/csv_columns.hpp"

#include "experiment.pb.h"
#include "runtime/record/json.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace troupe {
namespace {

using Fields = std::vector<std::string_view>;

constexpr std::size_t kNamesSaid = 20;

/// Whether the first line names the columns, where that is clear: names are no numbers, and of samples
/// the same fields are numbers.
std::optional<bool> detected_header(const Fields& first, const Fields& second) {
  const auto is_number = [](std::string_view field) {
    return csv_number(field).has_value();
  };
  const auto any = [&](const Fields& fields) {
    return std::any_of(fields.begin(), fields.end(), is_number);
  };
  if (!any(first)) {
    return any(second) ? std::optional(true) : std::nullopt;
  }
  const bool alike = first.size() == second.size() &&
                     std::equal(first.begin(), first.end(), second.begin(), [&](auto a, auto b) {
                       return is_number(a) == is_number(b);
                     });
  return alike ? std::optional(false) : std::nullopt;
}

std::string names_said(const CsvColumns& columns) {
  if (!columns.header) {
    return concat("its columns have numbers, 1 to ", columns.uses.size());
  }
  std::string text = "its columns are ";
  for (std::size_t i = 0; i < std::min(columns.names.size(), kNamesSaid); ++i) {
    text += (i == 0 ? "" : ", ") + csv_shown(columns.names[i]);
  }
  return text + (columns.names.size() > kNamesSaid ? ", ..." : "");
}

/// The column that an option means by a name or a number from 1.
Result<std::size_t> find_column(const CsvColumns& columns,
                                const char* key,
                                const std::string& asked) {
  const auto named = std::find(columns.names.begin(), columns.names.end(), asked);
  if (named != columns.names.end()) {
    if (std::find(named + 1, columns.names.end(), asked) != columns.names.end()) {
      return Error{ErrorKind::usage,
                   concat("data.csv.",
                          key,
                          ": several columns are called ",
                          csv_shown(asked),
                          "; give its number, 1 for the first")};
    }
    return static_cast<std::size_t>(named - columns.names.begin());
  }
  std::size_t number = 0;
  const auto [end, code] = std::from_chars(asked.data(), asked.data() + asked.size(), number);
  if (code == std::errc{} && end == asked.data() + asked.size() && number >= 1 &&
      number <= columns.uses.size()) {
    return number - 1;
  }
  return Error{ErrorKind::usage,
               concat("data.csv.",
                      key,
                      ": the file has no column ",
                      csv_shown(asked),
                      "; ",
                      names_said(columns))};
}

/// Gives a column of numbers another use.
Result<void> set_use(CsvColumns& columns,
                     const char* key,
                     const std::string& asked,
                     ColumnUse use) {
  const auto column = find_column(columns, key, asked);
  if (!column) {
    return column.error();
  }
  ColumnUse& now = columns.uses[*column];
  if (now != ColumnUse::number && now != use) {
    return Error{ErrorKind::usage,
                 concat("data.csv.",
                        key,
                        ": ",
                        columns.called(*column),
                        now == ColumnUse::target ? " is the target" : " has another use already")};
  }
  now = use;
  return {};
}

Result<bool> has_header(const proto::Csv& options, const Fields& first, const Fields& second) {
  if (options.header() != proto::Csv::detect) {
    return options.header() == proto::Csv::present;
  }
  const auto header = detected_header(first, second);
  if (!header) {
    return Error{ErrorKind::data,
                 "it cannot be told from its first two lines whether the first one names the "
                 "columns: say so by data.csv.header=present or data.csv.header=absent"};
  }
  return *header;
}

}  // namespace

std::optional<double> csv_number(std::string_view field) {
  field.remove_prefix(field.starts_with('+') ? 1 : 0);
  double number = 0;
  const auto [end, code] = std::from_chars(field.data(), field.data() + field.size(), number);
  const bool whole = code == std::errc{} && end == field.data() + field.size();
  const bool fits = std::abs(number) <= double{std::numeric_limits<float>::max()};  // not of a nan
  return whole && fits ? std::optional(number) : std::nullopt;
}

std::string csv_shown(std::string_view field) {
  constexpr std::size_t kShown = 40;
  return json_string(field.substr(0, kShown)) + (field.size() > kShown ? "..." : "");
}

std::string CsvColumns::called(std::size_t column) const {
  return header ? "column " + csv_shown(names[column]) : concat("column ", column + 1);
}

Result<CsvColumns> csv_columns(const proto::Csv& options,
                               const Fields& first,
                               const Fields& second) {
  if (first.size() < 2) {
    return Error{ErrorKind::data,
                 concat("its first line is one field, where a target and a column beside it are "
                        "needed; data.csv.separator is ",
                        json_string(options.separator()))};
  }
  const auto header = has_header(options, first, second);
  if (!header) {
    return header.error();
  }
  CsvColumns columns{.header = *header, .names = {}, .uses = {}};
  columns.uses.assign(first.size(), ColumnUse::number);
  if (*header) {
    columns.names.assign(first.begin(), first.end());
  }
  if (options.target().empty()) {
    columns.uses.back() = ColumnUse::target;
  } else if (auto set = set_use(columns, "target", options.target(), ColumnUse::target); !set) {
    return set.error();
  }
  for (const std::string& asked : options.leave_out()) {
    if (auto set = set_use(columns, "leave_out", asked, ColumnUse::left_out); !set) {
      return set.error();
    }
  }
  for (const std::string& asked : options.categories()) {
    if (auto set = set_use(columns, "categories", asked, ColumnUse::words); !set) {
      return set.error();
    }
  }
  return columns;
}

}  // namespace troupe
