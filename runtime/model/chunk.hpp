// A chunk: consecutive layers that one stage works on, and the head where it is the last. Like layers, a chunk is pure and holds no weights.
#pragma once

#include "messages/results.hpp"
#include "runtime/model/network.hpp"
#include "runtime/model/parameter_layout.hpp"
#include "runtime/model/width.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace troupe {

class Chunk {
 public:
  /// Chunk `index` of a network whose chunks begin at layers `first_layers` (a SectionedNetwork's where it is cut in width). Its untied parameters
  /// are divided in layer order among `shards` slices (no more than it has parameters), as equal in
  /// size as that allows; with `fragments` > 0 as lay_out() has it. `sends_back`: somebody wants the gradient by its input; by default where a chunk
  /// is before it.
  Chunk(const Network& network,
        const std::vector<std::int64_t>& first_layers,
        std::int32_t index,
        std::size_t shards = 1,
        std::optional<bool> sends_back = {},
        std::int64_t fragments = 0,
        Dealing dealing = Dealing::blocks);

  std::int32_t index() const { return index_; }

  bool first() const { return first_; }

  bool last() const { return last_; }

  /// Which part of its section it is, where the network is cut in width.
  const WidthPart& part() const { return part_; }

  /// Entries of the bundle that it gets, and of the one that it makes (of which it gets the gradients).
  std::size_t inputs() const { return inputs_; }

  std::size_t outputs() const { return outputs_; }

  /// Of a last chunk: the labels that its own loss is of.
  Tensor own_labels(const Tensor& labels) const;

  const std::vector<std::shared_ptr<const Layer>>& layers() const { return layers_; }

  const ParameterLayout& layout() const { return layout_; }

  /// Weights and gradients of a chunk are its own slices, then these.
  const std::vector<BorrowedSlice>& borrowed() const { return borrowed_; }

  Flops flops() const;               // of a sample
  double influence_flops() const;    // of a sample
  std::int64_t saved_bytes() const;  // from forward to backward, of a sample
  /// Of a sample: the largest activation that is made to be joined with a skip connection and that no layer keeps.
  std::int64_t passing_bytes() const;
  std::int64_t input_bytes() const;  // across the cut, of a sample; skips included

  std::int64_t x_bytes() const { return x_bytes_; }  // the same without skips

  std::int64_t output_bytes() const;  // likewise

  /// The weights that a run starts from: a function of seed and names alone.
  std::vector<Tensor> initial_slices(Stream& stream, std::uint64_t seed) const;

  /// Names and shapes of the buffers, in layer order, and how they start.
  std::vector<ParameterSpec> buffers() const;
  std::vector<Tensor> initial_buffers(Stream& stream) const;

  /// The stash is empty unless `keep` is set. `labels`: for the last chunk only; without them y is
  /// the network's output and there is no result.
  ForwardPass forward(const Pass& pass,
                      const Weights& weights,
                      std::vector<Tensor> buffers,
                      const Bundle& input,
                      const Tensor& labels,
                      bool keep) const;

  /// `error` is unused by the last chunk, whose stash ends with the loss's gradient.
  InputGradient input_gradient(const Pass& pass,
                               const Weights& weights,
                               Stash stash,
                               Bundle error) const;

  /// The gradient by x of the sum over y, of the forward that left `stash` (kept) and, but for the last
  /// chunk, `y`. (B, ...) as x.
  Tensor influence(const Pass& pass, const Weights& weights, Stash stash, const Bundle& y) const;

  /// Adds to the gradient slices, or makes them where `gradient` is empty; then divides by
  /// `divide_by` (M at the last micro-batch, else 1).
  WeightGradient weight_gradient(Stream& stream,
                                 const Stash& stash,
                                 std::vector<Tensor> gradient,
                                 std::int32_t divide_by) const;

 private:
  void pass_back(const Pass& pass,
                 const std::vector<Tensor>& slices,
                 Stash& stash,
                 Bundle& error,
                 bool to_input) const;
  std::vector<Tensor> views(std::size_t layer, const std::vector<Tensor>& slices) const;
  std::vector<Tensor> new_gradient(Stream& stream) const;
  Tensor loss(Stream& stream, const Tensor& y, const Tensor& labels, Tensor gradient) const;
  Tensor own_loss(Stream& stream, const Bundle& y, const Tensor& labels, Stash* stash) const;

  std::int32_t index_;
  WidthPart part_;
  bool first_;
  bool sends_back_;  // the gradient by its input
  bool last_;
  Loss loss_;
  OwnLoss own_loss_;
  float label_smoothing_;
  std::int64_t shared_classes_;
  std::int64_t input_bytes_;
  std::int64_t x_bytes_;
  std::int64_t output_bytes_;
  std::size_t inputs_;
  std::size_t outputs_;
  std::vector<std::shared_ptr<const Layer>> layers_;
  ParameterLayout layout_;
  std::vector<BorrowedSlice> borrowed_;
  std::vector<std::vector<ParameterRead>> reads_;  // by layer
  std::vector<std::size_t> buffers_each_;          // by layer: how many
  std::vector<double> samples_each_;               // by layer: of a sample of the micro-batch
};

}  // namespace troupe
