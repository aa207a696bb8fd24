#include "runtime/data/teacher.hpp"

#include "experiment/data.pb.h"
#include "kernels/random.hpp"
#include "kernels/wording.hpp"
#include "runtime/data/gather.hpp"
#include "runtime/data/lazy_rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace troupe {
namespace {

// The largest number of weights in a layer (128 MiB; a label below it is exact in float), and of
// floats in all samples of a split (1 GiB).
constexpr double kWeightsMax = 1 << 24;
constexpr double kFloatsMax = 1 << 28;

// Deviation of a hidden layer's weights times the root of its width: about that of what meets the
// tanhs, which are bent there but not saturated. A larger one makes the teacher harder to learn.
constexpr double kGain = 1.0;

// From so many samples each output's scale is measured, so that it can be made 1.
constexpr std::int64_t kScaleSamples = 256;

/// y = W x with W of (outputs, inputs), kept transposed so that the inner loop adds to many sums.
class Matrix {
 public:
  Matrix(std::int64_t inputs, std::int64_t outputs, double deviation, RandomStream stream)
      : inputs_(static_cast<std::size_t>(inputs)),
        outputs_(static_cast<std::size_t>(outputs)),
        weights_(inputs_ * outputs_) {
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      weights_[i] = deviation * stream.normal(i);
    }
  }

  void scale_output(std::size_t output, double factor) {
    for (std::size_t i = 0; i < inputs_; ++i) {
      weights_[i * outputs_ + output] *= factor;
    }
  }

  void apply(std::span<const double> x, std::vector<double>& y) const {
    y.assign(outputs_, 0.0);
    for (std::size_t i = 0; i < inputs_; ++i) {
      const double* weights = weights_.data() + i * outputs_;
      for (std::size_t j = 0; j < outputs_; ++j) {
        y[j] += weights[j] * x[i];
      }
    }
  }

 private:
  std::size_t inputs_;
  std::size_t outputs_;
  std::vector<double> weights_;  // (inputs, outputs)
};

void apply_tanh(std::vector<double>& x) {
  for (double& value : x) {
    value = std::tanh(value);
  }
}

double deviation(std::int64_t inputs) {
  return kGain / std::sqrt(static_cast<double>(inputs));
}

class Teacher final : public Dataset {
 public:
  Teacher(const proto::Teacher& options, std::uint64_t seed)
      : inputs_(options.inputs()),
        outputs_(options.outputs()),
        values_(options.values()),
        seed_(seed),
        first_(
            inputs_, options.hidden(), deviation(inputs_), RandomStream(seed, Purpose::teacher, 1)),
        second_(options.hidden(),
                options.hidden(),
                deviation(options.hidden()),
                RandomStream(seed, Purpose::teacher, 2)),
        last_(options.hidden(), outputs_, 1.0, RandomStream(seed, Purpose::teacher, 3)),
        train_{options.train(), LazyRows<float>(options.train(), row_width(options))},
        test_{options.test(), LazyRows<float>(options.test(), row_width(options))} {
    equalise();
  }

  /// Of a kept sample: its inputs, then its values or its label.
  static std::int64_t row_width(const proto::Teacher& options) {
    return options.inputs() + (options.values() ? options.outputs() : 1);
  }

  std::int64_t size(Split split) const override { return part(split).size; }

  Shape sample_shape() const override { return {inputs_}; }

  int classes() const override { return values_ ? 0 : static_cast<int>(outputs_); }

  std::int64_t values() const override { return values_ ? outputs_ : 0; }

  void gather(Split split,
              std::span<const std::int64_t> indices,
              std::int64_t /*epoch*/,
              const Samples& to) const override {
    check_gather(*this, split, indices, to);
    const auto inputs = static_cast<std::size_t>(inputs_);
    const auto outputs = static_cast<std::size_t>(outputs_);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const std::span<const float> row = part(split).rows.row(
          indices[i], [&](std::span<float> fresh) { make_row(split, indices[i], fresh); });
      std::copy_n(row.begin(), inputs, to.x.begin() + static_cast<std::ptrdiff_t>(i * inputs));
      if (values_) {
        std::copy_n(row.begin() + inputs_,
                    outputs,
                    to.targets.begin() + static_cast<std::ptrdiff_t>(i * outputs));
      } else {
        to.labels[i] = static_cast<std::int32_t>(row.back());
      }
    }
  }

 private:
  struct Part {
    std::int64_t size;
    LazyRows<float> rows;  // (size, row_width)
  };

  const Part& part(Split split) const { return split == Split::train ? train_ : test_; }

  /// Scales the last layer so that each output's mean square is 1.
  void equalise() {
    std::vector<double> squares(static_cast<std::size_t>(outputs_));
    std::vector<double> x;
    for (std::int64_t sample = 0; sample < kScaleSamples; ++sample) {
      const RandomStream stream(seed_, Purpose::teacher, static_cast<std::uint64_t>(4 + sample));
      x.resize(static_cast<std::size_t>(inputs_));
      for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = stream.normal(i);
      }
      answer(x);
      for (std::size_t j = 0; j < squares.size(); ++j) {
        squares[j] += x[j] * x[j];
      }
    }
    for (std::size_t j = 0; j < squares.size(); ++j) {
      last_.scale_output(j, std::sqrt(static_cast<double>(kScaleSamples) / squares[j]));
    }
  }

  /// Puts the outputs into the place of the inputs.
  void answer(std::vector<double>& x) const {
    std::vector<double> y;
    first_.apply(x, y);
    apply_tanh(y);
    second_.apply(y, x);
    apply_tanh(x);
    last_.apply(x, y);
    x.swap(y);
  }

  void make_row(Split split, std::int64_t index, std::span<float> row) const {
    const std::uint64_t name = 2 * static_cast<std::uint64_t>(index) + (split == Split::test);
    const RandomStream stream(seed_, Purpose::dataset, name);
    std::vector<double> x(static_cast<std::size_t>(inputs_));
    for (std::size_t i = 0; i < x.size(); ++i) {
      row[i] = static_cast<float>(stream.normal(i));
      x[i] = row[i];  // what the pupil sees
    }
    answer(x);
    if (values_) {
      std::transform(x.begin(), x.end(), row.begin() + inputs_, [](double value) {
        return static_cast<float>(value);
      });
    } else {
      row.back() = static_cast<float>(std::max_element(x.begin(), x.end()) - x.begin());
    }
  }

  std::int64_t inputs_;
  std::int64_t outputs_;
  bool values_;
  std::uint64_t seed_;
  Matrix first_;
  Matrix second_;
  Matrix last_;
  Part train_;
  Part test_;
};

}  // namespace

Result<std::shared_ptr<const Dataset>> make_teacher(const proto::Teacher& options,
                                                    std::uint64_t seed) {
  // In double, whose products cannot overflow.
  const auto inputs = static_cast<double>(options.inputs());
  const auto hidden = static_cast<double>(options.hidden());
  const auto outputs = static_cast<double>(options.outputs());
  const double row = inputs + (options.values() ? outputs : 1);
  const auto samples = static_cast<double>(std::max(options.train(), options.test()));
  const double weights = std::max({inputs * hidden, hidden * hidden, hidden * outputs});
  if (weights > kWeightsMax) {
    return usage_error(
        "data.teacher is too large: a layer of it would have {} weights, and at most {} are kept",
        weights,
        kWeightsMax);
  }
  if (row * samples > kFloatsMax) {
    return usage_error(
        "data.teacher is too large: its samples would be {} numbers, and at most {} are kept",
        row * samples,
        kFloatsMax);
  }
  return std::shared_ptr<const Dataset>(std::make_shared<Teacher>(options, seed));
}

}  // namespace troupe
