#include "runtime/data/streamed_arrays.hpp"

#include "runtime/data/gather.hpp"
#include "runtime/data/mapped_file.hpp"

#include <stdexcept>
#include <utility>

namespace troupe {
namespace {

class StreamedArrays final : public Dataset {
 public:
  explicit StreamedArrays(StreamedData data) : data_(std::move(data)) {}

  std::int64_t size(Split split) const override { return std::ssize(part(split).rows); }

  Shape sample_shape() const override { return data_.sample; }

  int classes() const override { return data_.classes; }

  std::int64_t values() const override { return data_.values; }

  const Preparation* preparation() const override { return data_.preparation.get(); }

  void gather(Split split,
              std::span<const std::int64_t> indices,
              std::int64_t /*epoch*/,
              const Samples& to) const override {
    check_gather(*this, split, indices, to);
    const StreamedRows& from = part(split);
    for (const NumberArray* array : {&from.x, &from.y}) {
      if (array->file && !array->file->is_whole()) {
        throw std::runtime_error(
            concat(from.path, " is not usable: a file has become shorter while it was read"));
      }
    }
    const auto width = static_cast<std::size_t>(data_.sample.elements());
    const std::size_t targets = data_.y_scales.size();
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const auto row = static_cast<std::size_t>(from.rows[static_cast<std::size_t>(indices[i])]);
      for (std::size_t j = 0; j < width; ++j) {
        to.x[i * width + j] = data_.x_scales[j % data_.x_scales.size()](from.x[row * width + j]);
      }
      if (data_.values == 0) {
        to.labels[i] = static_cast<std::int32_t>(from.y[row]);
        continue;
      }
      for (std::size_t j = 0; j < targets; ++j) {
        to.targets[i * targets + j] = data_.y_scales[j](from.y[row * targets + j]);
      }
    }
  }

 private:
  const StreamedRows& part(Split split) const {
    return split == Split::train ? data_.train : data_.test;
  }

  StreamedData data_;
};

}  // namespace

std::shared_ptr<const Dataset> streamed_arrays(StreamedData data) {
  return std::make_shared<StreamedArrays>(std::move(data));
}

}  // namespace troupe
