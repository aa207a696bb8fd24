#include "runtime/model/layer.hpp"

#include <utility>

namespace troupe {

Shape with_batch(std::int64_t rows, const Shape& sample) {
  Shape shape{rows};
  for (int i = 0; i < sample.dimensions(); ++i) {
    shape.push_back(sample[i]);
  }
  return shape;
}

Tensor through_activation(Stream& stream, ActivationKind kind, const Tensor& saved, Tensor dy) {
  if (kind == ActivationKind::none) {
    return dy;
  }
  Tensor delta = dy.exclusive() ? dy : stream.allocate(dy.shape(), dy.type());
  activation_backward(stream, kind, saved, dy, delta);
  return delta;
}

void PlainLayer::shapes(BundleShape& bundle) const {
  bundle.front().shape = output_shape();
}

void PlainLayer::forward(
    const Pass& pass, Parameters w, std::span<Tensor> buffers, Bundle& bundle, Saved& saved) const {
  const Tensor x = std::move(bundle.front().tensor);
  bundle.front().tensor = transform(pass, w, buffers, x, saved);
}

void PlainLayer::input_gradient(
    const Pass& pass, Parameters w, Saved& saved, Bundle& error, bool want_dx) const {
  Tensor dy = std::move(error.front().tensor);
  error.front().tensor = transform_gradient(pass, w, saved, std::move(dy), want_dx);
}

}  // namespace troupe
