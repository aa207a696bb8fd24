#include "runtime/model/chunk.hpp"

#include "kernels/loss.hpp"
#include "kernels/random.hpp"

#include <cmath>

namespace troupe {
namespace {

/// x, or its copy on the stream's device.
Tensor on_device(Stream& stream, const Tensor& x) {
  if (!x || x.device() == stream.device()) {
    return x;
  }
  Tensor here = stream.allocate(x.shape(), x.type());
  copy(stream, x, here);
  return here;
}

constexpr std::int64_t kAlign = 16;  // elements: every parameter starts on a cache line

Tensor initial_values(const ParameterSpec& spec, std::uint64_t seed, Stream& stream) {
  std::vector<float> values(static_cast<std::size_t>(spec.shape.elements()));
  const RandomStream random(seed, Purpose::weights, name_key(spec.name.data(), spec.name.size()));
  const double scale = 1 / std::sqrt(static_cast<double>(spec.fan_in));
  for (std::size_t i = 0; i < values.size(); ++i) {
    double value = 0;
    switch (spec.initial) {
      case Initial::uniform_fan_in:
        value = scale * (2 * random.uniform(i) - 1);
        break;
      case Initial::lecun_normal:
        value = scale * random.normal(i);
        break;
      case Initial::zero:
        break;
      case Initial::one:
        value = 1;
        break;
    }
    values[i] = static_cast<float>(value);
  }
  return from_host(stream, values, spec.shape);
}

}  // namespace

std::int64_t ParameterLayout::parameters() const {
  std::int64_t n = 0;
  for (const Entry& e : entries) {
    n += e.spec.shape.elements();
  }
  return n;
}

std::int64_t ParameterLayout::bytes() const {
  std::int64_t n = 0;
  for (const std::int64_t size : slice_sizes) {
    n += 4 * size;
  }
  return n;
}

Chunk::Chunk(const Network& network, std::int32_t index, std::int64_t first, std::int64_t last)
    : index_(index),
      first_(first == 0),
      last_(last == static_cast<std::int64_t>(network.layers.size())),
      loss_(network.loss),
      layers_(network.layers.begin() + first, network.layers.begin() + last) {
  layout_.slice_sizes = {0};
  for (const auto& layer : layers_) {
    std::vector<ParameterSpec> specs = layer->parameters();
    parameters_of_.push_back(specs.size());
    for (ParameterSpec& spec : specs) {
      std::int64_t& size = layout_.slice_sizes[0];
      const std::int64_t elements = spec.shape.elements();
      layout_.entries.push_back({std::move(spec), 0, size});
      size += (elements + kAlign - 1) / kAlign * kAlign;
    }
  }
}

Flops Chunk::flops() const {
  Flops all;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Flops f = layers_[i]->flops();
    all.forward += f.forward;
    all.input_gradient += first_ && i == 0 ? 0 : f.input_gradient;
    all.weight_gradient += f.weight_gradient;
  }
  return all;
}

std::int64_t Chunk::saved_bytes() const {
  std::int64_t n = 0;
  for (const auto& layer : layers_) {
    n += layer->saved_bytes();
  }
  return n;
}

std::int64_t Chunk::output_bytes() const {
  return 4 * layers_.back()->output_shape().elements();
}

std::vector<Tensor> Chunk::initial_slices(Stream& stream, std::uint64_t seed) const {
  std::vector<Tensor> slices;
  for (const std::int64_t size : layout_.slice_sizes) {
    slices.push_back(stream.allocate({size}));
    fill(stream, slices.back(), 0);
  }
  for (const ParameterLayout::Entry& e : layout_.entries) {
    copy(
        stream, initial_values(e.spec, seed, stream), slices[e.slice].view(e.offset, e.spec.shape));
  }
  stream.synchronize();
  return slices;
}

std::vector<std::vector<Tensor>> Chunk::views(const std::vector<Tensor>& slices) const {
  std::vector<std::vector<Tensor>> by_layer;
  std::size_t entry = 0;
  for (const std::size_t n : parameters_of_) {
    std::vector<Tensor> parameters;
    for (std::size_t i = 0; i < n; ++i) {
      const ParameterLayout::Entry& e = layout_.entries[entry++];
      parameters.push_back(slices[e.slice].view(e.offset, e.spec.shape));
    }
    by_layer.push_back(std::move(parameters));
  }
  return by_layer;
}

std::vector<std::vector<Tensor>> Chunk::views(const Weights& weights) const {
  std::vector<Tensor> slices;
  for (const Slice& slice : weights) {
    slices.push_back(slice.values);
  }
  return views(slices);
}

void Chunk::loss(
    Stream& stream, const Tensor& y, const Tensor& labels, Tensor gradient, Outputs& out) const {
  out.result = stream.allocate({2}, DType::float64);
  switch (loss_) {
    case Loss::cross_entropy:
      softmax_cross_entropy(stream, y, on_device(stream, labels), gradient, out.result);
      return;
    case Loss::squared_error:
      squared_error(stream, y, on_device(stream, labels), gradient, out.result);
      return;
    case Loss::sum: {
      double sum = 0;
      for (const float value : y.span<float>()) {
        sum += value;
      }
      out.result.span<double>()[0] = sum;
      out.result.span<double>()[1] = 0;
      if (gradient) {
        fill(stream, gradient, 1.0 / static_cast<double>(y.shape()[0]));
      }
      return;
    }
  }
}

Outputs Chunk::forward(Stream& stream,
                       const Weights& weights,
                       const Bundle& input,
                       const Tensor& labels) const {
  const auto w = views(weights);
  Outputs out;
  out.stash.resize(layers_.size() + (last_ ? 1 : 0));
  Tensor x = on_device(stream, input.front().tensor);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    x = layers_[i]->forward(stream, w[i], x, out.stash[i]);
  }
  if (last_) {
    Tensor gradient = stream.allocate(x.shape());
    loss(stream, x, labels, gradient, out);
    out.stash.back() = {gradient};
  } else {
    out.bundle = {{"x", x}};
  }
  return out;
}

Outputs Chunk::infer(Stream& stream,
                     const Weights& weights,
                     const Bundle& input,
                     const Tensor& labels) const {
  const auto w = views(weights);
  Outputs out;
  Tensor x = on_device(stream, input.front().tensor);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    Saved saved;
    x = layers_[i]->forward(stream, w[i], x, saved);
  }
  if (last_) {
    loss(stream, x, labels, {}, out);
  } else {
    out.bundle = {{"x", x}};
  }
  return out;
}

Outputs Chunk::input_gradient(Stream& stream,
                              const Weights& weights,
                              Stash stash,
                              Bundle error) const {
  const auto w = views(weights);
  Outputs out;
  Tensor dy;
  if (last_) {
    dy = std::move(stash.back().front());
    stash.pop_back();
  } else {
    dy = std::move(error.front().tensor);
    error.clear();
    if (dy.device() != stream.device()) {
      dy = on_device(stream, dy);
    }
  }
  for (std::size_t i = layers_.size(); i-- > 0;) {
    dy = layers_[i]->input_gradient(stream, w[i], stash[i], std::move(dy), !(first_ && i == 0));
  }
  if (!first_) {
    out.bundle = {{"x", dy}};
  }
  out.stash = std::move(stash);
  return out;
}

Outputs Chunk::weight_gradient(Stream& stream,
                               const Stash& stash,
                               std::vector<Tensor> gradient,
                               std::int32_t divide_by) const {
  const bool accumulate = !gradient.empty();
  if (!accumulate) {
    for (const std::int64_t size : layout_.slice_sizes) {
      gradient.push_back(stream.allocate({size}));
    }
    // Only the padding has to be zeroed; the rest is written whole.
    for (std::size_t i = 0; i < layout_.entries.size(); ++i) {
      const ParameterLayout::Entry& e = layout_.entries[i];
      const std::int64_t end = e.offset + e.spec.shape.elements();
      const bool next_in_slice =
          i + 1 < layout_.entries.size() && layout_.entries[i + 1].slice == e.slice;
      const std::int64_t next =
          next_in_slice ? layout_.entries[i + 1].offset : layout_.slice_sizes[e.slice];
      if (next > end) {
        fill(stream, gradient[e.slice].view(end, {next - end}), 0);
      }
    }
  }
  const auto g = views(gradient);
  for (std::size_t i = layers_.size(); i-- > 0;) {
    layers_[i]->weight_gradient(stream, stash[i], g[i], accumulate);
  }
  if (divide_by != 1) {
    for (const Tensor& slice : gradient) {
      scale(stream, slice, 1.0f / static_cast<float>(divide_by));
    }
  }
  Outputs out;
  out.tensors = std::move(gradient);
  return out;
}

}  // namespace troupe
