// A chunk: consecutive layers that one stage works on, the layout of their parameters in slices,
// and the head where it is the last. Like layers, a chunk is pure and holds no weights.
#pragma once

#include "messages/messages.hpp"
#include "runtime/model/network.hpp"

#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// Where each parameter of a chunk stands in its slices.
struct ParameterLayout {
  struct Entry {
    ParameterSpec spec;
    std::size_t slice = 0;
    std::int64_t offset = 0;  // elements into the slice
  };

  std::vector<Entry> entries;  // in layer order
  std::vector<std::int64_t>
      slice_sizes;  // elements, padding included; the padding is zero for ever

  std::int64_t parameters() const;  // without padding
  std::int64_t bytes() const;       // with padding
};

class Chunk {
 public:
  /// Layers [first, last) of `network` as chunk `index`.
  Chunk(const Network& network, std::int32_t index, std::int64_t first, std::int64_t last);

  std::int32_t index() const { return index_; }

  bool first() const { return first_; }

  bool last() const { return last_; }

  const std::vector<std::shared_ptr<const Layer>>& layers() const { return layers_; }

  const ParameterLayout& layout() const { return layout_; }

  Flops flops() const;                // of a sample
  std::int64_t saved_bytes() const;   // from forward to backward, of a sample
  std::int64_t output_bytes() const;  // across the cut, of a sample

  /// The weights that a run starts from: a function of seed and names alone.
  std::vector<Tensor> initial_slices(Stream& stream, std::uint64_t seed) const;

  /// Outputs: bundle (y), stash, and result where this is the last chunk. `labels` only for the
  /// last.
  Outputs forward(Stream& stream,
                  const Weights& weights,
                  const Bundle& input,
                  const Tensor& labels) const;

  /// Forward only, nothing kept: bundle, result.
  Outputs infer(Stream& stream,
                const Weights& weights,
                const Bundle& input,
                const Tensor& labels) const;

  /// Outputs: bundle (dx; empty for the first chunk), stash for weight_gradient. `error` is unused
  /// by the last chunk, whose stash ends with the loss's gradient.
  Outputs input_gradient(Stream& stream, const Weights& weights, Stash stash, Bundle error) const;

  /// Adds to the gradient slices, or makes them where `gradient` is empty; then divides by
  /// `divide_by` (M at the last micro-batch, else 1). Outputs: tensors (the slices).
  Outputs weight_gradient(Stream& stream,
                          const Stash& stash,
                          std::vector<Tensor> gradient,
                          std::int32_t divide_by) const;

  /// The parameters of each layer as views into slices (weights or gradients).
  std::vector<std::vector<Tensor>> views(const std::vector<Tensor>& slices) const;

 private:
  std::vector<std::vector<Tensor>> views(const Weights& weights) const;
  void loss(
      Stream& stream, const Tensor& y, const Tensor& labels, Tensor gradient, Outputs& out) const;

  std::int32_t index_;
  bool first_;
  bool last_;
  Loss loss_;
  std::vector<std::shared_ptr<const Layer>> layers_;
  std::vector<std::size_t> parameters_of_;  // by layer: how many
  ParameterLayout layout_;
};

}  // namespace troupe
