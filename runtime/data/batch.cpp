#include "runtime/data/batch.hpp"

namespace troupe {
namespace {

Tensor uploaded(Stream& stream, const Tensor& x) {
  Tensor there = stream.allocate(x.shape(), x.type());
  copy(stream, x, there);
  return there;
}

}  // namespace

Batch gather_batch(Stream& stream,
                   const Dataset& data,
                   Split split,
                   std::span<const std::int64_t> indices,
                   std::int64_t epoch) {
  if (stream.device().kind != DeviceKind::cpu) {
    Stream host(Device{});
    const Batch here = gather_batch(host, data, split, indices, epoch);
    return {.x = uploaded(stream, here.x), .target = uploaded(stream, here.target)};
  }
  const auto rows = static_cast<std::int64_t>(indices.size());
  Shape shape{rows};
  for (int i = 0; i < data.sample_shape().dimensions(); ++i) {
    shape.push_back(data.sample_shape()[i]);
  }
  Batch batch;
  Samples to;
  batch.x = stream.allocate(shape, data.input_type());
  if (data.input_type() == DType::int32) {
    to.tokens = batch.x.span<std::int32_t>();
  } else {
    to.x = batch.x.span<float>();
  }
  if (data.classes() > 0) {
    const std::int64_t each = data.labels_per_sample();
    batch.target = stream.allocate(each > 1 ? Shape{rows, each} : Shape{rows}, DType::int32);
    to.labels = batch.target.span<std::int32_t>();
  } else {
    batch.target = stream.allocate({rows, data.values()});
    to.targets = batch.target.span<float>();
  }
  data.gather(split, indices, epoch, to);
  return batch;
}

}  // namespace troupe
