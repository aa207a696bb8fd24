// What data of one's own goes through before it is a data set: some of the samples are kept for
// tests, and numbers get a mean of 0 and a variance of 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Which rows of a table are for what; both rise.
struct HeldOut {
  std::vector<std::int64_t> train;
  std::vector<std::int64_t> test;
};

/// `share` of `rows` rows, rounded, drawn by `seed` for tests; where there are two rows at least, each
/// part gets one at least.
HeldOut hold_out(std::int64_t rows, double share, std::uint64_t seed);

/// 0, 1, ...
std::vector<std::int64_t> all_rows(std::int64_t rows);

/// (number - mean) * factor; as it stands, the number itself.
struct ColumnScale {
  double mean = 0;
  double factor = 1;

  float operator()(double number) const { return static_cast<float>((number - mean) * factor); }
};

constexpr std::size_t kClassesMax = 65536;  // of a data set of one's own

/// What a data set of one's own has learned from its training samples: kept with weights, so that other
/// samples can be shown to them in the same way.
struct Preparation {
  std::vector<std::string> classes{};  // names by label; empty: they are numbers, or none
  std::vector<ColumnScale> x{};        // by column or channel; empty: as they are
  std::vector<ColumnScale> y{};        // of targets that are values; empty: as they are
  // By column: of CSV's columns of words, else empty
  std::vector<std::vector<std::string>> words{};
  std::vector<std::string> columns{};  // names of a table's; empty: its first line names none

  // What is told of the files once they are open, and not kept with weights
  std::vector<std::string> understood{};  // a sentence each
  std::vector<std::string> doubts{};      // what looks wrong, each with what to set
  bool without_target = false;            // rows to be predicted, whose targets are 0
  // Of test samples, what one answer for all comes to: see below
  std::optional<double> constant{};
};

/// "90 samples for training and 10 for tests, drawn by seed" or "..., of FILE".
std::string split_told(const HeldOut& rows, const std::string& test_path);

/// "3 classes: a (25), b (35), ...", the first twelve of them.
std::string classes_told(const std::vector<std::string>& names,
                         const std::vector<std::int64_t>& counts);

/// Whether a target of so many different whole numbers is meant as a number.
bool are_values(std::int64_t different, std::int64_t rows);

/// What is said where they are taken for classes; `kind` is "csv" or "arrays".
std::string values_doubted(std::int64_t different, std::int64_t rows, const char* kind);

/// What was understood of the labels of arrays, and what looks wrong in them, into `to`, which has the classes.
void tell_labels(const std::vector<std::int32_t>& train,
                 const std::vector<std::int32_t>& test,
                 Preparation& to);

/// Preparation::constant of labels: the share of `test` that has the class of which `train` has most; of `values` numbers a
/// target: the mean, over samples, of half the squares of what is left of `test` when the mean of `train` is taken away.
double constant_accuracy(const std::vector<std::int32_t>& train,
                         const std::vector<std::int32_t>& test);
double constant_loss(const std::vector<float>& train,
                     const std::vector<float>& test,
                     std::size_t values);

/// `name` where it is UTF-8; else with each byte from 0x80 on as the character of Latin-1 that it is.
std::string utf8_name(std::string_view name);

/// Means and variances of the columns of a table, by Welford's update (1962).
class ColumnMoments {
 public:
  explicit ColumnMoments(std::size_t columns) : columns_(columns) {}

  /// One number of the training samples.
  void add(std::size_t column, double number) {
    Column& c = columns_[column];
    const double from = number - c.mean;
    c.count += 1;
    c.mean += from / c.count;
    c.squares += from * (number - c.mean);
  }

  /// What makes the mean 0 and the mean square 1. A column of which nothing was added stays as it is;
  /// of one whose numbers are all the same only the mean is taken away.
  std::vector<ColumnScale> scales() const;

 private:
  struct Column {
    double count = 0;
    double mean = 0;
    double squares = 0;  // sum of the squared distances from the mean
  };

  std::vector<Column> columns_;
};

}  // namespace troupe
