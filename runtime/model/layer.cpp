#include "runtime/model/layer.hpp"

#include "kernels/check.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

/// Each run of a piece's neighbouring elements: f(first in the whole parameter, first in the piece, count).
template <class F>
void for_each_run(const Piece& piece, F&& f) {
  std::int64_t all = 0;
  for (const std::int64_t group : piece.groups) {
    all += group;
  }
  std::int64_t at = 0;
  for (std::int64_t o = 0; o < piece.outer; ++o) {
    std::int64_t before = 0;
    for (const std::int64_t group : piece.groups) {
      const RowRange share = rows_of(group, {piece.rank, piece.parts});
      f((o * all + before + share.first) * piece.inner, at, share.count * piece.inner);
      at += share.count * piece.inner;
      before += group;
    }
  }
}

}  // namespace

Shape with_batch(std::int64_t rows, const Shape& sample) {
  Shape shape{rows};
  for (int i = 0; i < sample.dimensions(); ++i) {
    shape.push_back(sample[i]);
  }
  return shape;
}

RowRange rows_of(std::int64_t all, const WidthPart& part) {
  const std::int64_t first = part.rank * all / part.parts;
  return {first, (part.rank + 1) * all / part.parts - first};
}

ParameterSpec piece_of(const ParameterSpec& whole,
                       const Shape& shape,
                       std::int64_t outer,
                       std::vector<std::int64_t> groups,
                       std::int64_t inner,
                       const WidthPart& part) {
  ParameterSpec spec = whole;
  spec.name = concat(whole.name, '[', part.rank, '/', part.parts, ']');
  spec.shape = shape;
  spec.piece = std::make_shared<const Piece>(
      Piece{whole, outer, std::move(groups), inner, part.rank, part.parts});
  return spec;
}

std::vector<float> piece_values(const ParameterSpec& piece, std::span<const float> whole) {
  std::vector<float> own(static_cast<std::size_t>(piece.shape.elements()));
  for_each_run(*piece.piece, [&](std::int64_t first, std::int64_t at, std::int64_t count) {
    std::copy_n(whole.begin() + first, count, own.begin() + at);
  });
  return own;
}

void put_piece(const ParameterSpec& piece, std::span<const float> own, std::span<float> whole) {
  for_each_run(*piece.piece, [&](std::int64_t first, std::int64_t at, std::int64_t count) {
    std::copy_n(own.begin() + at, count, whole.begin() + first);
  });
}

const std::string& ParameterSpec::whole_name() const {
  return piece ? piece->of.name : name;
}

Shape columns_of(const Shape& whole, const WidthPart& part) {
  Shape shape;
  for (int i = 0; i + 1 < whole.dimensions(); ++i) {
    shape.push_back(whole[i]);
  }
  shape.push_back(whole.back() / part.parts);
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
    const Pass& pass, Parameters w, LayerBuffers buffers, Bundle& bundle, Saved& saved) const {
  const Tensor x = std::move(bundle.front().tensor);
  bundle.front().tensor = transform(pass, w, buffers, x, saved);
}

void PlainLayer::input_gradient(
    const Pass& pass, Parameters w, Saved& saved, Bundle& error, bool want_dx) const {
  Tensor dy = std::move(error.front().tensor);
  error.front().tensor = transform_gradient(pass, w, saved, std::move(dy), want_dx);
}

}  // namespace troupe
