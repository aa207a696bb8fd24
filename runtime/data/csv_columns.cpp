#include "runtime/data/csv_columns.hpp"

#include "experiment/data.pb.h"
#include "kernels/numeral.hpp"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "runtime/data/csv_reader.hpp"
#include "runtime/record/json.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

namespace troupe {
namespace {

using Fields = std::vector<std::string_view>;

constexpr std::size_t kNamesSaid = 20;

/// Whole numbers that rise, as pandas calls columns without names and others call years: five or more that count on, or
/// three from 0 or 1 without a word beside them; or from there some over a fraction.
bool counts(const Fields& first, const Fields& second) {
  bool each = true;
  double begin = -1;
  double last = -1;
  std::size_t numbers = 0;
  for (const std::string_view field : first) {
    if (const auto number = csv_number(field)) {
      if (*number <= last || field.find_first_not_of("0123456789") != field.npos) {
        return false;
      }
      each = each && (numbers == 0 || *number == last + 1);
      begin = numbers++ == 0 ? *number : begin;
      last = *number;
    }
  }
  const bool from_zero = numbers == first.size() && begin <= 1;
  return (each && numbers >= (from_zero ? 3 : 5)) ||
         (from_zero && std::any_of(second.begin(), second.end(), [](std::string_view field) {
            const auto number = csv_number(field);
            return number && *number != std::floor(*number);
          }));
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

/// Gives a column of numbers another use.
Result<void> set_use(CsvColumns& columns,
                     const char* key,
                     const std::string& asked,
                     ColumnUse use) {
  const auto column = csv_column(columns, key, asked);
  TROUPE_TRY(column);
  ColumnUse& now = columns.uses[*column];
  if (now != ColumnUse::number && now != use) {
    return usage_error("data.csv.{}: {}{}",
                       key,
                       columns.called(*column),
                       now == ColumnUse::target ? " is the target" : " has another use already");
  }
  now = use;
  return {};
}

/// What `asked` is called in a file without the target, where a number counts the columns with it. "0", which no
/// column is, where that cannot be told.
std::string without(const std::string& target,
                    const CsvColumns& columns,
                    const std::string& asked) {
  const auto number = [](const std::string& text) -> std::int64_t {
    const bool digits = !text.empty() && text.size() < 10 &&
                        text.find_first_not_of("0123456789") == std::string::npos;
    return digits ? std::stoll(text) : 0;
  };
  const bool named =
      std::find(columns.names.begin(), columns.names.end(), asked) != columns.names.end();
  const std::int64_t place = number(asked);
  if (named || place == 0 || target.empty()) {
    return asked;
  }
  const std::int64_t of_target = number(target);
  return of_target == 0 ? "0" : std::to_string(place > of_target ? place - 1 : place);
}

Result<bool> has_header(const proto::Csv& options,
                        const Fields& first,
                        const Fields& second,
                        char separator) {
  if (options.header() != proto::Csv::detect) {
    return options.header() == proto::Csv::present;
  }
  const auto header = detected_header(options, first, second);
  if (!header) {
    for (const std::string_view field : second) {
      const auto setting = csv_number_setting({field}, options, separator);
      if (!setting.empty()) {
        return data_error(
            "{} in its second line is not a number as it is: {}", csv_shown(field), setting.text());
      }
    }
    return Error{
        ErrorKind::data,
        "it cannot be told from its first two lines whether the first one names the "
        "columns: say so by --set data.csv.header=present or --set data.csv.header=absent"};
  }
  return *header;
}

/// Without a unit before or behind it, and without the blanks beside that.
std::string_view without_units(std::string_view field, const proto::Csv& options) {
  const auto blanks = [](std::string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    return text.substr(0, text.find_last_not_of(' ') + 1);
  };
  for (const std::string& unit : options.units()) {
    if (field.starts_with(unit)) {
      field = blanks(field.substr(unit.size()));
    } else if (field.ends_with(unit)) {
      field = blanks(field.substr(0, field.size() - unit.size()));
    }
  }
  return field;
}

/// Whether a separator of thousands stands before three digits each time.
bool grouped_by(std::string_view field, char by) {
  for (std::size_t at = field.find(by); at != field.npos; at = field.find(by, at + 1)) {
    const std::size_t digits = field.substr(at + 1).find_first_not_of("0123456789");
    if (at == 0 || field[0] == '0' || std::min(digits, field.size() - at - 1) != 3) {
      return false;
    }
  }
  return true;
}

}  // namespace

Result<std::size_t> csv_column(const CsvColumns& columns,
                               const char* key,
                               const std::string& asked) {
  const auto named = std::find(columns.names.begin(), columns.names.end(), asked);
  if (named != columns.names.end()) {
    if (std::find(named + 1, columns.names.end(), asked) != columns.names.end()) {
      return usage_error(
          "data.csv.{}: several columns are called {}; give its number, 1 for the first",
          key,
          csv_shown(asked));
    }
    return static_cast<std::size_t>(named - columns.names.begin());
  }
  const std::size_t number = numeral<std::size_t>(asked).value_or(0);
  if (number >= 1 && number <= columns.uses.size()) {
    return number - 1;
  }
  const std::string near = nearest(asked, columns.names);
  const bool list = asked.find(',') != asked.npos && std::string_view(key) != "target";
  return usage_error(
      "data.csv.{}: the file has no column {}{}{}",
      key,
      csv_shown(asked),
      list ? concat("; a list is [", asked, "]") : "",
      near.empty() ? "; " + names_said(columns)
                   : fill_in(", did you mean {}? ({})", csv_shown(near), names_said(columns)));
}

std::optional<bool> detected_header(const proto::Csv& options,
                                    const Fields& first,
                                    const Fields& second) {
  const auto is_number = [&](std::string_view field) {
    return csv_number(field, options).has_value();
  };
  bool named = false;    // a word stands over a number
  bool sampled = false;  // a number stands over something else
  bool numbers = false;  // anywhere in the first line
  const std::size_t behind = second.size() - std::min(first.size(), second.size());
  for (std::size_t i = 0; i < first.size() && i + behind < second.size(); ++i) {
    const std::string_view below = second[i + behind];
    const bool number = is_number(first[i]);
    named = named || (!number && is_number(below) && !csv_missing(first[i], options));
    sampled = sampled || (number && !is_number(below) && !csv_missing(below, options));
    numbers = numbers || number;
  }
  if (named || sampled) {
    return sampled ? std::nullopt : std::optional(true);
  }
  return numbers && !counts(first, second) && first.size() == second.size() ? std::optional(false)
                                                                            : std::nullopt;
}

std::optional<double> csv_number(std::string_view field) {
  field.remove_prefix(field.starts_with('+') ? 1 : 0);
  const auto number = numeral<double>(field);
  const bool fits = number && std::abs(*number) <= double{std::numeric_limits<float>::max()};
  return fits ? number : std::nullopt;  // a nan does not fit
}

std::optional<double> csv_number(std::string_view field, const proto::Csv& options) {
  const std::string& thousands = options.thousands();
  if (options.decimal() == proto::Csv::point && thousands.empty() && options.units().empty()) {
    return csv_number(field);
  }
  std::string text(without_units(field, options));
  if (!thousands.empty()) {
    const char by = thousands == "blank" ? ' ' : thousands[0];
    if (!grouped_by(text, by)) {
      return std::nullopt;
    }
    std::erase(text, by);
  }
  if (options.decimal() == proto::Csv::comma) {
    if (text.find('.') != text.npos) {
      return std::nullopt;
    }
    std::replace(text.begin(), text.end(), ',', '.');
  }
  return csv_number(text);
}

std::string CsvNumberSetting::text() const {
  return concat(digits.empty() ? "" : "--set " + digits,
                digits.empty() || unit.empty() ? "" : " ",
                unit.empty() ? "" : "--set data.csv.units=" + unit);
}

CsvNumberSetting csv_number_setting(const std::vector<std::string_view>& fields,
                                    const proto::Csv& options,
                                    char separator) {
  const bool comma_first = separator != ',';
  for (const char* unit : {"", "%", "$", "€", "£", "EUR", "USD"}) {
    for (const std::string_view digits : {"",
                                          comma_first ? "decimal=comma" : "thousands=,",
                                          comma_first ? "thousands=," : "decimal=comma",
                                          "thousands=blank",
                                          "decimal=comma --set data.csv.thousands=."}) {
      proto::Csv other = options;
      if (*unit != '\0') {
        other.add_units(unit);
      }
      if (digits.starts_with("decimal")) {
        other.set_decimal(proto::Csv::comma);
      }
      if (const std::size_t by = digits.find("thousands="); by != digits.npos) {
        other.set_thousands(std::string(digits.substr(by + 10)));
      }
      if (std::all_of(fields.begin(), fields.end(), [&](std::string_view field) {
            return csv_number(field, other).has_value();
          })) {
        return {digits.empty() ? "" : concat("data.csv.", digits), unit};
      }
    }
  }
  return {};
}

bool csv_date(std::string_view field) {
  return !field.empty() && std::isdigit(static_cast<unsigned char>(field[0])) != 0 &&
         std::ranges::any_of(std::string_view("-/.:"),
                             [&](char part) { return std::ranges::count(field, part) == 2; });
}

bool csv_missing(std::string_view field, const proto::Csv& options) {
  if (field.empty()) {
    return true;
  }
  const auto same = [&](std::string_view word) {
    return std::equal(field.begin(), field.end(), word.begin(), word.end(), [](char a, char b) {
      return std::tolower(static_cast<unsigned char>(a)) ==
             std::tolower(static_cast<unsigned char>(b));
    });
  };
  const auto& own = options.missing_words();
  return own.empty() ? std::any_of(kMissingWords.begin(), kMissingWords.end(), same)
                     : std::find(own.begin(), own.end(), field) != own.end();
}

std::string csv_shown(std::string_view field) {
  constexpr std::size_t kShown = 40;
  return json_string(field.substr(0, kShown)) + (field.size() > kShown ? "..." : "");
}

Result<void> CsvColumns::check_row(const CsvRow& row, bool without_target) const {
  const std::size_t right = uses.size() - (without_target ? 1 : 0);
  const bool one_more = row.fields.size() == right + 1 && row.fields.back().empty();
  if (row.fields.size() != right && !one_more) {
    return data_error("line {}: it has {} fields; expected {}", row.line, row.fields.size(), right);
  }
  if (header && std::equal(row.fields.begin(), row.fields.end(), names.begin(), names.end())) {
    return data_error("line {}: it is the line of the columns' names once more; take it out",
                      row.line);
  }
  return {};
}

std::string CsvColumns::called(std::size_t column) const {
  return header && !names[column].empty() ? "column " + csv_shown(names[column])
                                          : concat("column ", column + 1);
}

std::string CsvColumns::key(std::size_t column) const {
  const bool plain =
      header && !names[column].empty() &&
      std::count(names.begin(), names.end(), names[column]) == 1 &&
      names[column].find_first_of(" ,[]\"'$();&|<>*?#~=%{}\\!`\t") == std::string::npos;
  return plain ? names[column] : std::to_string(column + 1);
}

Result<CsvColumns> csv_columns(const proto::Csv& options,
                               const Fields& first,
                               const Fields& second,
                               char separator,
                               bool without_target) {
  if (first.size() < (without_target ? 1 : 2)) {
    return Error{ErrorKind::data,
                 concat("its first line is one field, where a target and a column beside it are "
                        "needed; data.csv.separator says what stands between two fields")};
  }
  const auto header = has_header(options, first, second, separator);
  TROUPE_TRY(header);
  CsvColumns columns{.header = *header, .names = {}, .uses = {}};
  if (*header) {
    columns.names.assign(first.begin(), first.end());
    columns.row_names = second.size() == first.size() + 1 && !second.back().empty();
    if (columns.row_names) {
      columns.names.insert(columns.names.begin(), "");
    }
  }
  columns.uses.assign(first.size() + (columns.row_names ? 1 : 0), ColumnUse::number);
  const bool separator_last =
      *header && first.back().empty() && !second.empty() && second.back().empty();
  if (separator_last && columns.uses.size() > 2) {
    columns.uses.back() = ColumnUse::left_out;
  }
  if (columns.row_names) {
    columns.uses.front() = ColumnUse::left_out;
  }
  if (without_target) {
    columns.uses.push_back(ColumnUse::target);
  } else if (options.target().empty()) {
    columns.uses[columns.uses.size() - (columns.uses.back() == ColumnUse::left_out ? 2 : 1)] =
        ColumnUse::target;
  } else if (auto set = set_use(columns, "target", options.target(), ColumnUse::target); !set) {
    return set.error();
  }
  for (const std::string& counted : options.leave_out()) {
    const auto asked = without_target ? without(options.target(), columns, counted) : counted;
    TROUPE_TRY(set_use(columns, "leave_out", asked, ColumnUse::left_out));
  }
  for (const std::string& counted : options.categories()) {
    if (counted == "auto") {
      continue;
    }
    const auto asked = without_target ? without(options.target(), columns, counted) : counted;
    TROUPE_TRY(set_use(columns, "categories", asked, ColumnUse::words));
  }
  return columns;
}

}  // namespace troupe
