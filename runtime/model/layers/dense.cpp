#include "kernels/convert.hpp"
#include "kernels/matmul.hpp"
#include "runtime/model/layers.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

class Dense final : public PlainLayer {
 public:
  Dense(std::string name, const DenseOptions& options)
      : PlainLayer(std::move(name)), o_(options), parameters_(whole_parameters()) {}

  /// A part of it, whose parameters are these.
  Dense(std::string name, const DenseOptions& options, std::vector<ParameterSpec> parameters)
      : PlainLayer(std::move(name)), o_(options), parameters_(std::move(parameters)) {}

  std::vector<ParameterSpec> parameters() const override { return parameters_; }

  /// Megatron-LM's pair (Shoeybi et al. 2019): by outputs where the input is whole, by inputs behind it; a head of tokens
  /// by classes. What has no even share, and any other head, is left whole, and each part has its own samples.
  std::optional<LayerPart> part(const Held& in, const WidthPart& part) const override {
    const bool by_classes = o_.head && o_.positions > 0 && o_.outputs >= part.parts;
    const bool by_outputs =
        by_classes || (!o_.head && o_.tied_weight.empty() && cuts_outputs(part));
    if (in.holding == Holding::rows && !by_outputs) {
      return LayerPart{};
    }
    if (in.holding == Holding::whole && by_outputs) {
      return LayerPart{
          .layer = outputs_of(part), .out = Holding::columns, .groups = o_.output_groups};
    }
    if (in.holding == Holding::columns && o_.tied_weight.empty()) {
      const bool activates = o_.activation != ActivationKind::none;
      return LayerPart{
          .layer = inputs_of(in, part),
          .out = Holding::sum,
          .behind = activates
                        ? activation_layer(name() + ".activation", output_shape(), o_.activation)
                        : nullptr};
    }
    return {};
  }

  std::vector<ParameterSpec> whole_parameters() const {
    const bool tied = !o_.tied_weight.empty();
    std::vector<ParameterSpec> all{{.name = tied ? o_.tied_weight : name() + ".weight",
                                    .shape = {o_.outputs, o_.inputs},
                                    .initial = o_.initial,
                                    .fan_in = o_.inputs,
                                    .deviation = o_.deviation,
                                    .matrix = !tied && !o_.head,
                                    .tied = tied,
                                    .order = FileOrder::flattens}};
    if (o_.bias) {
      const bool uniform = o_.initial == Initial::uniform_fan_in;
      all.push_back({.name = name() + ".bias",
                     .shape = {o_.outputs},
                     .initial = uniform ? Initial::uniform_fan_in : Initial::zero,
                     .fan_in = o_.inputs});
    }
    return all;
  }

  Shape output_shape() const override {
    return o_.positions > 0 ? Shape{o_.positions, o_.outputs} : Shape{o_.outputs};
  }

  Flops flops() const override {
    const double macs = 2.0 * static_cast<double>(rows_each() * o_.inputs * o_.outputs);
    return {macs, macs, macs};
  }

  bool takes_operands() const override { return true; }

  std::int64_t saved_bytes() const override { return 4 * rows_each() * (o_.inputs + o_.outputs); }

  Tensor transform(
      const Pass& pass, Parameters w, LayerBuffers, const Tensor& x, Saved& saved) const override {
    Stream& stream = pass.stream;
    const std::int64_t batch = x.shape()[0];
    const Tensor input = operand(stream, x);  // in x's own shape, which the gradient by it has too
    const Shape y_shape{batch * rows_each(), o_.outputs};
    const bool fused = derivative_from_output(o_.activation);
    Tensor z = stream.allocate(y_shape, stream.operand_type());
    matmul(stream,
           rows_of(input),
           w[0],
           z,
           {.transpose_b = true,
            .bias = o_.bias ? w[1] : Tensor{},
            .activation = fused ? o_.activation : ActivationKind::none});
    saved = {input, z};
    Tensor y = z;
    if (!fused) {
      y = stream.allocate(y_shape, z.type());
      activation_forward(stream, o_.activation, z, y);
    }
    return y.reshape(with_batch(batch, output_shape()));
  }

  Tensor transform_gradient(
      const Pass& pass, Parameters w, Saved& saved, Tensor dy, bool want_dx) const override {
    Tensor flat = dy.reshape(saved[1].shape());
    dy = {};
    const Tensor delta = operand(
        pass.stream, through_activation(pass.stream, o_.activation, saved[1], std::move(flat)));
    saved[1] = delta;  // (rows, outputs)
    if (!want_dx) {
      return {};
    }
    Tensor dx = pass.stream.allocate(saved[0].shape(), saved[0].type());
    matmul(pass.stream, delta, w[0], rows_of(dx));
    return dx;
  }

  void weight_gradient(Stream& stream, const Saved& saved, Gradients g) const override {
    matmul(stream,
           saved[1],
           rows_of(saved[0]),
           g[0].to,
           {.transpose_a = true, .accumulate = g[0].accumulate});
    if (o_.bias) {
      column_sum(stream, saved[1], g[1].to, g[1].accumulate);
    }
  }

 private:
  /// (B, ...) as (rows, inputs): a row for each sample, or for each position of each.
  Tensor rows_of(const Tensor& x) const { return x.reshape({x.elements() / o_.inputs, o_.inputs}); }

  std::int64_t rows_each() const { return std::max<std::int64_t>(1, o_.positions); }

  std::vector<std::int64_t> groups() const {
    return o_.output_groups.empty() ? std::vector<std::int64_t>{o_.outputs} : o_.output_groups;
  }

  bool cuts_outputs(const WidthPart& part) const {
    const std::vector<std::int64_t> all = groups();
    return std::ranges::all_of(all, [&](std::int64_t group) { return part.divides(group); });
  }

  /// y's own columns, of the whole x.
  std::shared_ptr<const Layer> outputs_of(const WidthPart& part) const {
    DenseOptions own = o_;
    own.outputs = troupe::rows_of(o_.outputs, part).count;
    std::vector<ParameterSpec> pieces{
        piece_of(parameters_[0], {own.outputs, o_.inputs}, 1, groups(), o_.inputs, part)};
    if (o_.bias) {
      pieces.push_back(piece_of(parameters_[1], {own.outputs}, 1, groups(), 1, part));
    }
    return std::make_shared<Dense>(name(), own, std::move(pieces));
  }

  /// A summand of y, of x's own columns. The bias is in the first part's.
  std::shared_ptr<const Layer> inputs_of(const Held& in, const WidthPart& part) const {
    const std::int64_t columns = in.whole.back();
    DenseOptions own = o_;
    own.inputs /= part.parts;
    own.activation = ActivationKind::none;
    own.bias = o_.bias && part.rank == 0;
    std::vector<ParameterSpec> pieces{piece_of(parameters_[0],
                                               {o_.outputs, own.inputs},
                                               o_.outputs * o_.inputs / columns,
                                               in.groups.empty() ? std::vector{columns} : in.groups,
                                               1,
                                               part)};
    if (own.bias) {
      pieces.push_back(parameters_[1]);
    }
    return std::make_shared<Dense>(name(), own, std::move(pieces));
  }

  DenseOptions o_;
  std::vector<ParameterSpec> parameters_;
};

}  // namespace

std::shared_ptr<const Layer> dense_layer(std::string name, const DenseOptions& options) {
  return std::make_shared<Dense>(std::move(name), options);
}

}  // namespace troupe
