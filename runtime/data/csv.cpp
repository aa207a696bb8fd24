#include "runtime/data/csv.hpp"

#include "experiment/data.pb.h"
#include "kernels/wording.hpp"
#include "runtime/data/csv_survey.hpp"
#include "runtime/data/csv_table.hpp"
#include "runtime/data/memory.hpp"
#include "runtime/data/preparation.hpp"
#include "runtime/record/json.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace troupe {
namespace {

constexpr std::size_t kNumbersMax = std::size_t{1} << 31;  // of all samples: 8 GiB

/// The rows `rows` of a table, scaled; columns of words as 0 and 1. The last scale is the target's.
MemorySamples samples_of(const CsvTable& table,
                         const std::vector<std::int64_t>& rows,
                         const std::vector<std::size_t>& widths,
                         bool values,
                         const std::vector<ColumnScale>& scales) {
  MemorySamples to;
  for (const std::int64_t row : rows) {
    const double* cells = table.cells.data() + static_cast<std::size_t>(row) * widths.size();
    for (std::size_t column = 0; column < widths.size(); ++column) {
      if (widths[column] == 0) {
        to.x.push_back(scales[column](cells[column]));
        continue;
      }
      const std::size_t first = to.x.size();
      to.x.resize(first + widths[column]);
      to.x[first + static_cast<std::size_t>(cells[column])] = 1;
    }
    to.lines.push_back(table.lines[static_cast<std::size_t>(row)]);
    const double target = table.targets[static_cast<std::size_t>(row)];
    if (values) {
      to.values.push_back(scales.back()(target));
    } else {
      to.labels.push_back(static_cast<std::int32_t>(target));
    }
  }
  return to;
}

/// Of what is there of the numbers; the last is the target's.
std::vector<ColumnScale> scales_of(const CsvTable& table,
                                   const std::vector<std::int64_t>& rows,
                                   const std::vector<std::size_t>& widths,
                                   bool values) {
  ColumnMoments moments(widths.size() + 1);
  for (const std::int64_t row : rows) {
    const double* cells = table.cells.data() + static_cast<std::size_t>(row) * widths.size();
    for (std::size_t column = 0; column < widths.size(); ++column) {
      if (widths[column] == 0 && !std::isnan(cells[column])) {
        moments.add(column, cells[column]);
      }
    }
    if (values) {
      moments.add(widths.size(), table.targets[static_cast<std::size_t>(row)]);
    }
  }
  return moments.scales();
}

/// What of the options and of the file as a whole does not make a data set.
Result<void> check_csv(const proto::Csv& options, const CsvLoader& loader, const CsvTable& table) {
  const auto& widths = loader.widths();
  const std::size_t width = std::accumulate(
      widths.begin(), widths.end(), std::size_t{0}, [](std::size_t sum, std::size_t words) {
        return sum + std::max<std::size_t>(1, words);
      });
  const auto unusable = [&](const std::string& what) {
    return Error{ErrorKind::data, concat(options.path(), " is not usable: ", what)};
  };
  if (static_cast<std::size_t>(table.rows()) > kNumbersMax / width) {
    return unusable(concat(
        table.rows(), " samples of ", width, " numbers are more than ", kNumbersMax, " numbers"));
  }
  if (table.rows() < 2 && options.test_path().empty() && !loader.without_target()) {
    return unusable("it holds one sample, and the test samples are drawn from it, too");
  }
  std::map<double, std::string> numbers;
  for (const std::string& name :
       options.values() ? std::vector<std::string>() : loader.class_names()) {
    const auto number = csv_number(name, options);
    if (!number) {
      continue;
    }
    if (const auto [same, fresh] = numbers.emplace(*number, name); !fresh) {
      return unusable(fill_in("its classes {} and {} are the same number; write it in one way",
                              csv_shown(same->second),
                              csv_shown(name)));
    }
  }
  return {};
}

/// That what weights were trained with fits the file.
Result<void> check_prepared(const proto::Csv& options,
                            const CsvLoader& loader,
                            const Preparation* prepared) {
  const bool as_they_are =
      prepared && std::all_of(prepared->x.begin(), prepared->x.end(), [](const ColumnScale& scale) {
        return scale.mean == 0 && scale.factor == 1;
      });
  if (as_they_are && loader.filled() > 0) {
    return Error{ErrorKind::data,
                 concat(options.path(),
                        " is not usable: numbers are missing, and the weights, which were trained "
                        "with data.csv.normalize=false, keep no means to take their place; fill "
                        "them in, or take these rows out")};
  }
  if (!prepared || (prepared->x.size() == loader.widths().size() &&
                    prepared->y.size() == (options.values() ? 1u : 0u))) {
    return {};
  }
  return data_error(
      "{} is not usable: it has {} columns beside the target, and the weights were trained on {}{}",
      options.path(),
      loader.widths().size(),
      prepared->x.size(),
      options.values() ? " and a number to predict" : " and classes");
}

/// Scales of the columns; the last is the target's.
std::vector<ColumnScale> given_scales(const Preparation& prepared) {
  std::vector<ColumnScale> scales = prepared.x;
  scales.push_back(prepared.y.empty() ? ColumnScale{} : prepared.y.front());
  return scales;
}

Preparation preparation_of(const proto::Csv& options,
                           const CsvLoader& loader,
                           const std::vector<ColumnScale>& scales) {
  Preparation preparation{.classes = loader.class_names(),
                          .x = scales,
                          .words = loader.column_words(),
                          .columns = loader.column_names(),
                          .without_target = loader.without_target()};
  preparation.x.pop_back();
  if (options.values()) {
    preparation.y = {scales.back()};
  }
  return preparation;
}

}  // namespace

Result<void> check_csv_options(const proto::Csv& options) {
  if (options.path().empty()) {
    return Error{ErrorKind::usage,
                 "data.csv.path is not set: name a CSV file by --set data.csv.path=FILE"};
  }
  if (options.thousands().size() > 1 && options.thousands() != "blank") {
    return usage_error("data.csv.thousands is {}; expected one character or the word blank",
                       json_string(options.thousands()));
  }
  const std::string& separator = options.separator();
  const bool one = separator.size() == 1 && !std::isalnum(static_cast<unsigned char>(separator[0]));
  const bool word = separator.empty() || separator == "tab" || separator == "blank";
  if (!word && (!one || separator.find_first_of("\"\n\r+-._") != separator.npos)) {
    return Error{ErrorKind::usage,
                 concat("data.csv.separator is ",
                        json_string(separator),
                        "; use tab, blank or a single character that is not part of a number")};
  }
  return {};
}

Result<std::shared_ptr<const Dataset>> open_csv(const proto::Csv& options,
                                                std::uint64_t seed,
                                                const Preparation* prepared) {
  TROUPE_TRY(check_csv_options(options));
  CsvLoader loader(options, prepared);
  auto table = loader.read(options.path());
  TROUPE_TRY(table);
  TROUPE_TRY(check_csv(options, loader, *table));
  const bool alone = loader.without_target();  // none of its rows is for training
  const bool apart = !alone && !options.test_path().empty();
  auto other = apart ? loader.read(options.test_path()) : Result<CsvTable>(CsvTable());
  TROUPE_TRY(other);
  TROUPE_TRY(check_prepared(options, loader, prepared));
  const HeldOut rows = apart   ? HeldOut{all_rows(table->rows()), all_rows(other->rows())}
                       : alone ? HeldOut{all_rows(table->rows()), all_rows(table->rows())}
                               : hold_out(table->rows(), options.test_share(), seed);
  const auto& widths = loader.widths();
  auto scales =
      prepared ? given_scales(*prepared) : scales_of(*table, rows.train, widths, options.values());
  table->fill(scales);
  other->fill(scales);
  if (!prepared && !options.normalize()) {
    scales.assign(scales.size(), ColumnScale{});
  }
  const auto part = [&](const CsvTable& from, const std::vector<std::int64_t>& which) {
    return samples_of(from, which, widths, options.values(), scales);
  };
  MemoryData data{.classes = static_cast<int>(loader.classes()),
                  .values = options.values() ? 1 : 0,
                  .train = part(*table, rows.train),
                  .test = part(apart ? *other : *table, rows.test)};
  data.sample = {static_cast<std::int64_t>(data.train.x.size() / rows.train.size())};
  auto preparation = preparation_of(options, loader, scales);
  if (!prepared) {
    tell_csv(options, loader, *table, preparation);
    preparation.understood.push_back(split_told(rows, options.test_path()));
  } else if (!loader.columns().header && !prepared->columns.empty()) {
    preparation.doubts.push_back(
        fill_in("{} does not name its columns; they are taken to be {}, in this order",
                options.path(),
                trained_columns_told(*prepared, options)));
  }
  preparation.constant = options.values() ? constant_loss(data.train.values, data.test.values, 1)
                                          : constant_accuracy(data.train.labels, data.test.labels);
  data.preparation = std::make_shared<const Preparation>(std::move(preparation));
  return memory_dataset(std::move(data));
}

}  // namespace troupe
