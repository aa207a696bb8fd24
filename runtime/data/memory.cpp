#include "runtime/data/memory.hpp"

#include "kernels/wording.hpp"
#include "runtime/data/gather.hpp"
#include "runtime/data/sample_names.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace troupe {
namespace {

class Memory final : public Dataset, public SampleNames {
 public:
  explicit Memory(MemoryData data) : data_(std::move(data)) {}

  std::int64_t size(Split split) const override {
    return static_cast<std::int64_t>(part(split).x.size()) / data_.sample.elements();
  }

  Shape sample_shape() const override { return data_.sample; }

  int classes() const override { return data_.classes; }

  std::int64_t values() const override { return data_.values; }

  const Preparation* preparation() const override { return data_.preparation.get(); }

  std::string kind() const override {
    return data_.train.lines.empty() || data_.test.lines.empty() ? "" : "line";
  }

  std::string sample_name(Split split, std::int64_t index) const override {
    return std::to_string(part(split).lines.at(static_cast<std::size_t>(index)));
  }

  void gather(Split split,
              std::span<const std::int64_t> indices,
              std::int64_t /*epoch*/,
              const Samples& to) const override {
    check_gather(*this, split, indices, to);
    const MemorySamples& from = part(split);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      copy_row(from.x, indices[i], data_.sample.elements(), i, to.x);
      copy_row(from.labels, indices[i], data_.classes > 0 ? 1 : 0, i, to.labels);
      copy_row(from.values, indices[i], data_.values, i, to.targets);
    }
  }

 private:
  const MemorySamples& part(Split split) const {
    return split == Split::train ? data_.train : data_.test;
  }

  template <class T>
  static void copy_row(const std::vector<T>& from,
                       std::int64_t row,
                       std::int64_t width,
                       std::size_t at,
                       std::span<T> to) {
    std::copy_n(
        from.begin() + row * width, width, to.begin() + static_cast<std::ptrdiff_t>(at) * width);
  }

  MemoryData data_;
};

bool finite(const std::vector<float>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](float x) { return std::isfinite(x); });
}

/// What is wrong with a split, or "".
std::string fault(const MemoryData& data, const MemorySamples& split) {
  const auto width = static_cast<std::size_t>(data.sample.elements());
  const std::size_t samples = split.x.size() / width;
  if (samples == 0 || split.x.size() % width != 0) {
    return fill_in("x has {} numbers, which is no whole number of samples {}, or none",
                   split.x.size(),
                   data.sample);
  }
  const std::size_t labels = data.classes > 0 ? samples : 0;
  const std::size_t values = samples * static_cast<std::size_t>(data.values);
  if (split.labels.size() != labels || split.values.size() != values) {
    return fill_in("{} samples need {} labels and {} values; there are {} and {}",
                   samples,
                   labels,
                   values,
                   split.labels.size(),
                   split.values.size());
  }
  for (const std::int32_t label : split.labels) {
    if (label < 0 || label >= data.classes) {
      return concat("a label is ", label, "; expected 0 to ", data.classes - 1);
    }
  }
  return finite(split.x) && finite(split.values) ? "" : "a number is infinite or no number";
}

}  // namespace

Result<std::shared_ptr<const Dataset>> memory_dataset(MemoryData data) {
  const auto refuse = [](const std::string& why) {
    return Error{ErrorKind::data, "memory_dataset: " + why};
  };
  if (data.sample.dimensions() == 0 || data.sample.elements() < 1) {
    return refuse("the shape of a sample has no dimensions, or a dimension of 0");
  }
  if (data.classes < 0 || data.values < 0 || (data.classes > 0) == (data.values > 0)) {
    return refuse(concat("targets are either labels of some classes or some values; classes is ",
                         data.classes,
                         ", values is ",
                         data.values));
  }
  for (const auto& [name, split] :
       {std::pair{"train: ", &data.train}, std::pair{"test: ", &data.test}}) {
    if (const std::string why = fault(data, *split); !why.empty()) {
      return refuse(name + why);
    }
  }
  return std::shared_ptr<const Dataset>(std::make_shared<Memory>(std::move(data)));
}

}  // namespace troupe
