#include "runtime/model/chunk.hpp"

#include "kernels/convert.hpp"
#include "kernels/loss.hpp"
#include "kernels/sequences.hpp"
#include "runtime/model/layers/junction.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

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

Bundle on_device(Stream& stream, const Bundle& bundle) {
  Bundle here;
  for (const NamedTensor& entry : bundle) {
    here.push_back({entry.name, on_device(stream, entry.tensor)});
  }
  return here;
}

/// For those who know float32 alone: other stages, codecs, predictors, layers that take no operands.
void widen(Stream& stream, Bundle& bundle) {
  for (NamedTensor& entry : bundle) {
    entry.tensor = in_float32(stream, entry.tensor);
  }
}

std::int64_t bytes_of(const BundleShape& bundle) {
  std::int64_t bytes = 0;
  for (const NamedShape& entry : bundle) {
    bytes += 4 * entry.shape.elements() / entry.share;
  }
  return bytes;
}

std::vector<Tensor> values(const Weights& weights) {
  return mapped<Tensor>(weights, [&](const Slice& slice) { return slice.values; });
}

}  // namespace

Chunk::Chunk(const Network& network,
             const std::vector<std::int64_t>& first_layers,
             std::int32_t index,
             std::size_t shards,
             std::optional<bool> sends_back,
             std::int64_t fragments,
             Dealing dealing)
    : index_(index),
      part_{index % network.width, network.width},
      first_(index < network.width),
      sends_back_(sends_back.value_or(!first_)),
      last_(index + network.width >= static_cast<std::int32_t>(first_layers.size())),
      loss_(network.loss),
      own_loss_(network.own_loss),
      label_smoothing_(static_cast<float>(network.label_smoothing)),
      shared_classes_(network.shared_classes) {
  const auto layers = std::ssize(network.layers);
  const std::int64_t first = first_layers.at(static_cast<std::size_t>(index));
  const bool ends = index + 1 == static_cast<std::int32_t>(first_layers.size());
  const std::int64_t last = ends ? layers : first_layers[static_cast<std::size_t>(index) + 1];
  layers_.assign(network.layers.begin() + first, network.layers.begin() + last);
  const BundleShape& made = network.after.at(static_cast<std::size_t>(last - 1));
  outputs_ = made.size();
  output_bytes_ = bytes_of(made);
  // Each part of the section before has as much for it as this part of it has for others.
  const BundleShape input{{"x", network.input}};
  const auto next = static_cast<std::size_t>(first_ ? 0 : index - network.width + 1);
  const BundleShape& given =
      first_ ? input : network.after.at(static_cast<std::size_t>(first_layers[next] - 1));
  inputs_ = given.size();
  input_bytes_ = bytes_of(given);
  x_bytes_ = bytes_of({given.front()});
  ChunkParameters parameters = lay_out(network, first_layers, index, shards, fragments, dealing);
  layout_ = std::move(parameters.layout);
  borrowed_ = std::move(parameters.borrowed);
  reads_ = std::move(parameters.reads);
  for (const auto& layer : layers_) {
    buffers_each_.push_back(layer->buffers().size());
    const auto at = static_cast<std::size_t>(first) + samples_each_.size();
    samples_each_.push_back(1 / static_cast<double>(network.after[at].front().share));
  }
}

Flops Chunk::flops() const {
  Flops all;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Flops f = layers_[i]->flops();
    const double samples = samples_each_[i];
    all.forward += f.forward * samples;
    all.input_gradient += i > 0 || sends_back_ ? f.input_gradient * samples : 0;
    all.weight_gradient += f.weight_gradient * samples;
  }
  return all;
}

double Chunk::influence_flops() const {
  double all = 0;
  for (const auto& layer : layers_) {
    all += layer->flops().input_gradient;
  }
  return all;
}

std::int64_t Chunk::saved_bytes() const {
  double n = 0;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    n += static_cast<double>(layers_[i]->saved_bytes()) * samples_each_[i];
  }
  return static_cast<std::int64_t>(n);
}

std::int64_t Chunk::passing_bytes() const {
  double most = 0;
  for (std::size_t i = 0; i + 1 < layers_.size(); ++i) {
    const auto* const made = dynamic_cast<const PlainLayer*>(layers_[i].get());
    const Layer& next = *layers_[i + 1];
    if (made && made->saved_bytes() == 0 && next.saved_bytes() == 0 && next.closes_skip()) {
      most = std::max(most,
                      4 * static_cast<double>(made->output_shape().elements()) * samples_each_[i]);
    }
  }
  return static_cast<std::int64_t>(most);
}

std::int64_t Chunk::input_bytes() const {
  return input_bytes_;
}

std::int64_t Chunk::output_bytes() const {
  return output_bytes_;
}

std::vector<Tensor> Chunk::views(std::size_t layer, const std::vector<Tensor>& slices) const {
  return mapped<Tensor>(reads_[layer], [&](const ParameterRead& read) {
    return slices[read.slice].view(read.offset, read.shape);
  });
}

Tensor Chunk::own_labels(const Tensor& labels) const {
  return samples(labels, rows_of(labels.shape()[0], part_));
}

/// The result, and dL/dy in `gradient` where it is not empty.
Tensor Chunk::loss(Stream& stream, const Tensor& y, const Tensor& labels, Tensor gradient) const {
  if (loss_ == Loss::own) {
    return own_result(stream, own_loss_, y, on_device(stream, labels), gradient);
  }
  const Tensor result = stream.allocate({2}, DType::float64);
  switch (loss_) {
    case Loss::cross_entropy: {
      // One row a label: sequences have one at each position.
      const Tensor of = on_device(stream, labels);
      const Shape rows{of.elements(), y.elements() / of.elements()};
      softmax_cross_entropy(stream,
                            y.reshape(rows),
                            of.reshape({of.elements()}),
                            gradient ? gradient.reshape(rows) : Tensor{},
                            result,
                            gradient ? label_smoothing_ : 0.0f);
      break;
    }
    case Loss::squared_error: {
      const Shape rows{y.shape()[0], y.elements() / y.shape()[0]};  // an image is a row, too
      squared_error(stream,
                    y.reshape(rows),
                    on_device(stream, labels),
                    gradient ? gradient.reshape(rows) : Tensor{},
                    result);
      break;
    }
    case Loss::own:
      break;
    case Loss::sum: {
      double sum = 0;
      for (const float value : y.span<float>()) {
        sum += value;
      }
      result.span<double>()[0] = sum;
      result.span<double>()[1] = 0;
      if (gradient) {
        fill(stream, gradient, 1.0 / static_cast<double>(y.shape()[0]));
      }
      break;
    }
  }
  return result;
}

ForwardPass Chunk::forward(const Pass& pass,
                           const Weights& weights,
                           std::vector<Tensor> buffers,
                           const Bundle& input,
                           const Tensor& labels,
                           bool keep) const {
  const std::vector<Tensor> slices = values(weights);
  Bundle bundle = on_device(pass.stream, input);
  ForwardPass out;
  out.stash.resize(keep ? layers_.size() + (last_ ? 1 : 0) : 0);
  LayerBuffers left(buffers);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    Saved unwanted;
    if (!layers_[i]->takes_operands()) {
      widen(pass.stream, bundle);
    }
    layers_[i]->forward(pass,
                        views(i, slices),
                        left.first(buffers_each_[i]),
                        bundle,
                        keep ? out.stash[i] : unwanted);
    left = left.subspan(buffers_each_[i]);
  }
  out.buffers = std::move(buffers);
  if (!last_ || !labels || loss_ != Loss::cross_entropy || part_.parts > 1) {
    widen(pass.stream, bundle);
  }
  if (!last_ || !labels) {
    out.y = std::move(bundle);
    return out;
  }
  out.result = own_loss(pass.stream, bundle, labels, keep ? &out.stash : nullptr);
  return out;
}

/// Of the part's own samples, or classes. The gradients by the outputs become the last of the stash, where there is one.
Tensor Chunk::own_loss(Stream& stream,
                       const Bundle& made,
                       const Tensor& labels,
                       Stash* stash) const {
  const Tensor& y = made.front().tensor;
  if (shared_classes_ > 0) {
    const Tensor& logits = made.back().tensor;
    const Tensor gradient = stash ? stream.allocate(logits.shape()) : Tensor{};
    const Tensor result = stream.allocate({2}, DType::float64);
    const Shape rows{labels.elements(), logits.shape().back()};
    parted_cross_entropy(stream,
                         {.logits = logits.reshape(rows),
                          .statistics = y.reshape({labels.elements(), y.shape().back()}),
                          .labels = on_device(stream, labels).reshape({labels.elements()}),
                          .dlogits = gradient ? gradient.reshape(rows) : Tensor{},
                          .result = result,
                          .part = part_.rank,
                          .first = rows_of(shared_classes_, part_).first,
                          .classes = shared_classes_,
                          .smoothing = stash ? label_smoothing_ : 0.0f});
    if (stash) {  // nobody wants the gradient by the statistics: it is within that by the logits
      const Tensor none = stream.allocate(y.shape());
      fill(stream, none, 0);
      stash->back() = {none, gradient};
    }
    return result;
  }
  const Tensor gradient = stash ? stream.allocate(y.shape(), y.type()) : Tensor{};
  const Tensor own = own_labels(labels);
  const Tensor result = loss(stream, y, own, gradient);
  if (stash && part_.parts > 1) {  // the loss is the mean over the samples of all parts
    scale(stream,
          gradient,
          static_cast<float>(own.shape()[0]) / static_cast<float>(labels.shape()[0]));
  }
  if (stash) {
    stash->back() = {gradient};
  }
  return result;
}

InputGradient Chunk::input_gradient(const Pass& pass,
                                    const Weights& weights,
                                    Stash stash,
                                    Bundle error) const {
  const std::vector<Tensor> slices = values(weights);
  InputGradient out;
  if (last_) {
    error.clear();
    error.push_back({"x", std::move(stash.back().front())});
    if (shared_classes_ > 0) {
      error.push_back({kLogitsEntry, std::move(stash.back().back())});
    }
    stash.pop_back();
  } else {
    error = on_device(pass.stream, error);  // of parts, each piece may be elsewhere
  }
  pass_back(pass, slices, stash, error, sends_back_);
  if (sends_back_) {
    widen(pass.stream, error);
    out.dx = std::move(error);
  }
  out.deltas = std::move(stash);
  return out;
}

/// From the gradients by the chunk's outputs to those by its inputs, where somebody wants them.
void Chunk::pass_back(const Pass& pass,
                      const std::vector<Tensor>& slices,
                      Stash& stash,
                      Bundle& error,
                      bool to_input) const {
  for (std::size_t i = layers_.size(); i-- > 0;) {
    if (!layers_[i]->takes_operands()) {
      widen(pass.stream, error);
    }
    layers_[i]->input_gradient(pass, views(i, slices), stash[i], error, i > 0 || to_input);
  }
}

Tensor Chunk::influence(const Pass& pass,
                        const Weights& weights,
                        Stash stash,
                        const Bundle& y) const {
  const Tensor ones =
      pass.stream.allocate((last_ ? stash.back().front() : y.front().tensor).shape());
  fill(pass.stream, ones, 1);
  Bundle error{{"x", ones}};
  pass_back(pass, values(weights), stash, error, true);
  widen(pass.stream, error);
  return error.front().tensor;
}

std::vector<Tensor> Chunk::new_gradient(Stream& stream) const {
  std::vector<Tensor> gradient = mapped<Tensor>(
      layout_.slice_sizes, [&](const std::int64_t size) { return stream.allocate({size}); });
  for (const BorrowedSlice& slice : borrowed_) {
    gradient.push_back(stream.allocate({slice.size}));
  }
  // Only the padding has to be zeroed; the rest is written whole.
  std::vector<std::int64_t> end(gradient.size(), 0);
  const auto zero_up_to = [&](std::size_t slice, std::int64_t to) {
    if (to > end[slice]) {
      fill(stream, gradient[slice].view(end[slice], {to - end[slice]}), 0);
    }
  };
  for (const std::vector<ParameterRead>& reads : reads_) {
    for (const ParameterRead& read : reads) {
      zero_up_to(read.slice, read.offset);
      end[read.slice] = read.offset + read.shape.elements();
    }
  }
  for (std::size_t slice = 0; slice < gradient.size(); ++slice) {
    zero_up_to(slice, gradient[slice].elements());
  }
  return gradient;
}

WeightGradient Chunk::weight_gradient(Stream& stream,
                                      const Stash& stash,
                                      std::vector<Tensor> gradient,
                                      std::int32_t divide_by) const {
  const bool accumulate = !gradient.empty();
  if (!accumulate) {
    gradient = new_gradient(stream);
  }
  std::vector<Gradient> of_layer;
  for (std::size_t i = layers_.size(); i-- > 0;) {
    of_layer.clear();
    for (const ParameterRead& read : reads_[i]) {
      of_layer.push_back(
          {gradient[read.slice].view(read.offset, read.shape), accumulate || !read.writes_first});
    }
    layers_[i]->weight_gradient(stream, stash[i], of_layer);
  }
  if (divide_by != 1) {
    for (const Tensor& slice : gradient) {
      scale(stream, slice, 1.0f / static_cast<float>(divide_by));
    }
  }
  return {std::move(gradient)};
}

}  // namespace troupe
