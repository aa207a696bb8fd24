#include "runtime/data/arrays.hpp"

#include "experiment/data.pb.h"
#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "runtime/data/array_source.hpp"
#include "runtime/data/memory.hpp"
#include "runtime/data/preparation.hpp"
#include "runtime/data/streamed_arrays.hpp"
#include "runtime/record/json.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe {
namespace {

constexpr std::int64_t kArrayNumbersMax = std::int64_t{1} << 31;  // of all samples: 8 GiB
constexpr double kLabelMax = 65535;

/// Samples and their targets, where they are, and what they are called there.
struct ArrayPair {
  std::string path;
  std::string x_name;
  std::string y_name;
  NumberArray x;
  NumberArray y;
  bool without_target = false;  // y is 0 everywhere

  std::int64_t rows() const { return x.shape[0]; }

  /// Numbers of one sample, or of one target.
  static std::size_t width(const NumberArray& array) {
    return array.size() / static_cast<std::size_t>(array.shape[0]);
  }

  Error unusable(const std::string& name, const std::string& what) const {
    return {ErrorKind::data, concat(path, " is not usable: array ", json_string(name), ": ", what)};
  }
};

/// Of targets of a type with fractions, where labels are expected.
std::string fractions_told(const NumberArray& y) {
  std::set<double> different;
  bool labels = true;
  for (std::size_t i = 0; labels && i < y.size(); ++i) {
    labels = y[i] == std::floor(y[i]) && y[i] >= 0 && y[i] <= kLabelMax;
    different.insert(labels ? y[i] : 0);
  }
  return fill_in(
      "labels are whole numbers, and these are of a type with fractions; {}to predict "
      "them as numbers, set data.arrays.values=true",
      labels && !are_values(std::ssize(different), y.shape[0])
          ? "y.astype(\"int64\") in NumPy makes labels of them, to be saved in their "
            "place; or, "
          : "");
}

Result<void> check_shapes(const ArrayPair& pair, bool values) {
  const auto& x = pair.x.shape;
  const auto& y = pair.y.shape;
  if (x.size() < 2 || x.size() > 4) {
    return pair.unusable(
        pair.x_name,
        concat("its shape is ", extents_text(x), "; expected (N, D), (N, H, W) or (N, H, W, C)"));
  }
  if (!pair.x.file && pair.x.size() > static_cast<std::size_t>(kArrayNumbersMax)) {
    return pair.unusable(pair.x_name, concat("it has more than ", kArrayNumbersMax, " numbers"));
  }
  const bool column = y.size() == 1 || (y.size() == 2 && (values || y[1] == 1));
  if (!column || y[0] != x[0]) {
    return pair.unusable(
        pair.y_name,
        fill_in("its shape is {}; expected {} with the {} of {}{}",
                extents_text(y),
                values ? "(N) or (N, V)" : "(N)",
                x[0],
                json_string(pair.x_name),
                !values && y.size() == 2
                    ? "; numpy.argmax(y, 1) makes labels of columns of 0 and 1, and "
                      "--set data.arrays.values=true predicts numbers"
                    : ""));
  }
  return values || pair.y.type->whole ? Result<void>()
                                      : pair.unusable(pair.y_name, fractions_told(pair.y));
}

/// `prepared`: what weights were trained on, to which samples may be shown that have no target; else null.
Result<ArrayPair> read_pair(const ArraySource& source,
                            const std::string& x_name,
                            const std::string& y_name,
                            const proto::Arrays& options,
                            const Preparation* prepared) {
  auto x = source.array(x_name);
  TROUPE_TRY(x);
  const auto has_targets = prepared ? source.has(y_name) : true;
  TROUPE_TRY(has_targets);
  // Samples that are to be predicted get as many zeros as the weights were trained to make of each.
  auto y = *has_targets ? source.array(y_name)
                        : zeros(x->shape.empty() ? 1 : x->shape[0],
                                std::max<std::size_t>(prepared->y.size(), 1));
  TROUPE_TRY(y);
  if (options.channels_first() && x->shape.size() != 4) {
    return Error{ErrorKind::data,
                 fill_in("{} is not usable: array {}: its shape is {}; expected with "
                         "data.arrays.channels_first: (N, C, H, W)",
                         source.path(),
                         json_string(x_name),
                         extents_text(x->shape))};
  }
  ArrayPair pair{source.path(),
                 x_name,
                 y_name,
                 options.channels_first() ? x->channels_last() : *std::move(x),
                 *std::move(y),
                 !*has_targets};
  TROUPE_TRY(check_shapes(pair, options.values()));
  return pair;
}

/// Test samples are of the shape of the training samples, and so are their targets.
Result<void> check_alike(const ArrayPair& train, const ArrayPair& test) {
  if (!std::equal(train.x.shape.begin() + 1,
                  train.x.shape.end(),
                  test.x.shape.begin() + 1,
                  test.x.shape.end())) {
    return test.unusable(test.x_name,
                         fill_in("its shape is {}; training samples have {}",
                                 extents_text(test.x.shape),
                                 extents_text(train.x.shape)));
  }
  if (ArrayPair::width(train.y) != ArrayPair::width(test.y)) {
    return test.unusable(test.y_name,
                         fill_in("its shape is {}; training targets have {}",
                                 extents_text(test.y.shape),
                                 extents_text(train.y.shape)));
  }
  return {};
}

/// That all numbers are finite as float32, and labels in their range.
Result<void> check_numbers(const ArrayPair& pair, bool values) {
  constexpr double kMost = std::numeric_limits<float>::max();
  for (std::size_t i = 0; i < pair.x.size(); ++i) {
    if (!(std::abs(pair.x[i]) <= kMost)) {
      return pair.unusable(pair.x_name,
                           fill_in("sample {} has the number {}, which is not finite (as float32)",
                                   i / ArrayPair::width(pair.x),
                                   pair.x[i]));
    }
  }
  for (std::size_t i = 0; i < pair.y.size(); ++i) {
    const double y = pair.y[i];
    if (values ? !(std::abs(y) <= kMost) : y < 0 || y > kLabelMax) {
      return pair.unusable(pair.y_name,
                           fill_in("the target of sample {} is {}{}",
                                   i / ArrayPair::width(pair.y),
                                   y,
                                   values ? ", which is not finite (as float32)"
                                          : ", which is no label: expected 0 to 65535"));
    }
  }
  return {};
}

/// How features and targets are scaled. Of images there is a column a channel.
struct ArrayScales {
  std::vector<ColumnScale> x;
  std::vector<ColumnScale> y;
};

ArrayScales array_scales(const ArrayPair& pair,
                         const std::vector<std::int64_t>& rows,
                         const proto::Arrays& options) {
  const std::size_t columns =
      pair.x.shape.size() == 3 ? 1 : static_cast<std::size_t>(pair.x.shape.back());
  const std::size_t width = ArrayPair::width(pair.x);
  const std::size_t targets = ArrayPair::width(pair.y);
  ColumnMoments x(columns);
  ColumnMoments y(targets);
  for (const std::int64_t row : options.normalize() ? rows : std::vector<std::int64_t>()) {
    const auto first = static_cast<std::size_t>(row);
    for (std::size_t i = 0; i < width; ++i) {
      x.add(i % columns, pair.x[first * width + i]);
    }
    for (std::size_t i = 0; options.values() && i < targets; ++i) {
      y.add(i, pair.y[first * targets + i]);
    }
  }
  return {x.scales(), y.scales()};
}

std::vector<std::int32_t> labels_of(const ArrayPair& pair, const std::vector<std::int64_t>& rows) {
  std::vector<std::int32_t> labels;
  labels.reserve(rows.size());
  for (const std::int64_t row : rows) {
    labels.push_back(static_cast<std::int32_t>(pair.y[static_cast<std::size_t>(row)]));
  }
  return labels;
}

std::vector<float> values_of(const ArrayPair& pair,
                             const std::vector<std::int64_t>& rows,
                             const std::vector<ColumnScale>& scales) {
  std::vector<float> values;
  values.reserve(rows.size() * scales.size());
  for (const std::int64_t row : rows) {
    for (std::size_t i = 0; i < scales.size(); ++i) {
      values.push_back(scales[i](pair.y[static_cast<std::size_t>(row) * scales.size() + i]));
    }
  }
  return values;
}

MemorySamples array_samples(const ArrayPair& pair,
                            const std::vector<std::int64_t>& rows,
                            bool values,
                            const ArrayScales& scales) {
  const std::size_t width = ArrayPair::width(pair.x);
  MemorySamples to;
  to.x.reserve(rows.size() * width);
  for (const std::int64_t row : rows) {
    const auto first = static_cast<std::size_t>(row);
    for (std::size_t i = 0; i < width; ++i) {
      to.x.push_back(scales.x[i % scales.x.size()](pair.x[first * width + i]));
    }
  }
  to.values = values ? values_of(pair, rows, scales.y) : std::vector<float>();
  to.labels = values ? std::vector<std::int32_t>() : labels_of(pair, rows);
  return to;
}

Shape array_sample_shape(const ArrayPair& pair) {
  Shape shape;
  for (std::size_t i = 1; i < pair.x.shape.size(); ++i) {
    shape.push_back(pair.x.shape[i]);
  }
  if (pair.x.shape.size() == 3) {
    shape.push_back(1);
  }
  return shape;
}

/// What was understood of the arrays, and what looks wrong in them.
void tell_arrays(const proto::Arrays& options,
                 const ArrayPair& train,
                 const ArrayPair& test,
                 const HeldOut& rows,
                 const ArrayScales& scales,
                 Preparation& to) {
  const std::vector<std::int64_t> sample(train.x.shape.begin() + 1, train.x.shape.end());
  to.understood.push_back(fill_in("samples of shape {} in {}; in {} {}",
                                  extents_text(sample),
                                  json_string(train.x_name),
                                  json_string(train.y_name),
                                  options.values()
                                      ? concat("numbers to predict, ", scales.y.size(), " a sample")
                                      : "their labels"));
  if (options.values()) {
    to.constant = constant_loss(values_of(train, rows.train, scales.y),
                                values_of(test, rows.test, scales.y),
                                scales.y.size());
  } else {
    tell_labels(labels_of(train, rows.train), labels_of(test, rows.test), to);
  }
  to.understood.push_back(
      split_told(rows, options.test_path().empty() ? options.test_x() : options.test_path()));
  constexpr std::int64_t kChannels = 4;  // at most, of what has width and height beside them
  if (sample.size() == 3 && !options.channels_first() && sample[0] <= kChannels &&
      sample[1] > kChannels && sample[2] > kChannels) {
    to.doubts.push_back(
        fill_in("samples of shape {} look like images with their channels first: "
                "--set data.arrays.channels_first=true",
                extents_text(sample)));
  }
}

/// The data set of two pairs, or of one whose rows are parted.
Result<std::shared_ptr<const Dataset>> make_arrays(const proto::Arrays& options,
                                                   const ArrayPair& train,
                                                   const ArrayPair& test,
                                                   const HeldOut& rows,
                                                   const Preparation* prepared) {
  ArrayScales scales = array_scales(train, rows.train, options);
  if (prepared) {
    const std::size_t targets = options.values() ? scales.y.size() : 0;
    if (prepared->x.size() != scales.x.size() || prepared->y.size() != targets) {
      return train.unusable(train.x_name, "it is not of what the weights were trained on");
    }
    scales.x = prepared->x;
    std::copy(prepared->y.begin(), prepared->y.end(), scales.y.begin());
  }
  const std::int64_t values = options.values() ? static_cast<std::int64_t>(scales.y.size()) : 0;
  int classes = 0;
  if (!options.values()) {
    const auto largest = [](const std::vector<std::int32_t>& labels) {
      return *std::ranges::max_element(labels);
    };
    classes =
        1 + std::max(largest(labels_of(train, rows.train)), largest(labels_of(test, rows.test)));
  }
  if (prepared && !options.values()) {
    const auto known = static_cast<int>(prepared->classes.size());
    if (classes > known) {
      return test.unusable(
          test.y_name,
          concat("it has the label ", classes - 1, "; the weights were trained on ", known));
    }
    classes = known;
  }
  Preparation made{
      .classes = tabulated<std::string>(classes, [](int i) { return std::to_string(i); }),
      .x = scales.x,
      .y = options.values() ? scales.y : std::vector<ColumnScale>(),
      .without_target = train.without_target || test.without_target};
  if (!prepared) {
    tell_arrays(options, train, test, rows, scales, made);
  }
  auto preparation = std::make_shared<const Preparation>(std::move(made));
  if (train.x.file || test.x.file) {
    return streamed_arrays({.sample = array_sample_shape(train),
                            .classes = classes,
                            .values = values,
                            .x_scales = scales.x,
                            .y_scales = scales.y,
                            .train = {train.path, train.x, train.y, rows.train},
                            .test = {test.path, test.x, test.y, rows.test},
                            .preparation = std::move(preparation)});
  }
  return memory_dataset({.sample = array_sample_shape(train),
                         .classes = classes,
                         .values = values,
                         .train = array_samples(train, rows.train, options.values(), scales),
                         .test = array_samples(test, rows.test, options.values(), scales),
                         .preparation = std::move(preparation)});
}

/// The pair of test samples where it is named.
Result<ArrayPair> read_test(const proto::Arrays& options,
                            const ArraySource& source,
                            const Preparation* prepared,
                            std::uintmax_t mapped_from) {
  const std::string& x = options.test_x().empty() ? options.x() : options.test_x();
  const std::string& y = options.test_y().empty() ? options.y() : options.test_y();
  if (options.test_path().empty()) {
    return read_pair(source, x, y, options, prepared);
  }
  const auto other = ArraySource::open(options.test_path(), mapped_from);
  return other ? read_pair(*other, x, y, options, prepared) : other.error();
}

Result<void> check_array_options(const proto::Arrays& options) {
  const auto usage = [](const char* what) {
    return Error{ErrorKind::usage, what};
  };
  if (options.path().empty()) {
    return usage(
        "data.arrays.path is not set: name a folder of .npy files, a .npz or a .safetensors file "
        "by --set data.arrays.path=PATH");
  }
  if (options.test_path().empty() && options.test_x().empty() != options.test_y().empty()) {
    return usage("data.arrays: test_x and test_y name the test samples and their targets together");
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const Dataset>> open_arrays(const proto::Arrays& options,
                                                   std::uint64_t seed,
                                                   const Preparation* prepared,
                                                   std::uintmax_t mapped_from) {
  TROUPE_TRY(check_array_options(options));
  const auto source = ArraySource::open(options.path(), mapped_from);
  TROUPE_TRY(source);
  const auto train = read_pair(*source, options.x(), options.y(), options, prepared);
  TROUPE_TRY(train);
  TROUPE_TRY(check_numbers(*train, options.values()));
  if (options.test_path().empty() && options.test_x().empty()) {
    if (train->rows() < 2) {
      return train->unusable(options.x(), "it holds one sample, and test samples are drawn of it");
    }
    return make_arrays(
        options, *train, *train, hold_out(train->rows(), options.test_share(), seed), prepared);
  }
  const auto test = read_test(options, *source, prepared, mapped_from);
  TROUPE_TRY(test);
  TROUPE_TRY(check_alike(*train, *test));
  TROUPE_TRY(check_numbers(*test, options.values()));
  return make_arrays(
      options, *train, *test, {all_rows(train->rows()), all_rows(test->rows())}, prepared);
}

}  // namespace troupe
