#include "kernels/convolution.hpp"

#include "kernels/convert.hpp"
#include "kernels/matmul.hpp"
#include "runtime/model/layers.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

Shape windows(const Shape& input, const ConvolutionGeometry& geometry, std::int64_t channels) {
  return {geometry.output(input[0]), geometry.output(input[1]), channels};
}

/// Pixels of a line of `input` that its `output` windows meet, each as often as it is met:
/// multiplications by padding are not work.
std::int64_t pixels_met(std::int64_t input, std::int64_t output, const ConvolutionGeometry& g) {
  std::int64_t met = 0;
  for (std::int64_t i = 0; i < output; ++i) {
    const std::int64_t first = i * g.stride - g.padding;
    met += std::min(input, first + g.kernel) - std::max<std::int64_t>(0, first);
  }
  return met;
}

class Convolution final : public PlainLayer {
 public:
  /// `parameters`: of a part; empty: all of it.
  Convolution(std::string name,
              const ConvolutionLayerOptions& options,
              std::vector<ParameterSpec> parameters = {})
      : PlainLayer(std::move(name)),
        o_(options),
        full_(windows(o_.input, o_.geometry, o_.outputs)),
        pooled_({full_[0] / o_.pool, full_[1] / o_.pool, o_.outputs}),
        // Max pooling commutes with a rising function, so the derivative is taken on the smaller,
        // pooled output.
        pools_after_(o_.pool > 1 && derivative_from_output(o_.activation)),
        parameters_(parameters.empty() ? whole_parameters() : std::move(parameters)) {}

  std::vector<ParameterSpec> parameters() const override { return parameters_; }

  /// Its own output channels, of the whole image.
  std::optional<LayerPart> part(const Held& in, const WidthPart& part) const override {
    if (in.holding == Holding::rows && !part.divides(o_.outputs)) {
      return LayerPart{};
    }
    if (in.holding != Holding::whole || !part.divides(o_.outputs)) {
      return {};
    }
    ConvolutionLayerOptions own = o_;
    own.outputs /= part.parts;
    const Shape& filters = parameters_[0].shape;
    const std::int64_t each = filters.elements() / o_.outputs;
    std::vector<ParameterSpec> pieces{piece_of(parameters_[0],
                                               {own.outputs, filters[1], filters[2], filters[3]},
                                               1,
                                               {o_.outputs},
                                               each,
                                               part)};
    if (o_.bias) {
      pieces.push_back(piece_of(parameters_[1], {own.outputs}, 1, {o_.outputs}, 1, part));
    }
    return LayerPart{.layer = std::make_shared<Convolution>(name(), own, std::move(pieces)),
                     .out = Holding::columns};
  }

  std::vector<ParameterSpec> whole_parameters() const {
    const std::int64_t k = o_.geometry.kernel;
    const std::int64_t fan_in = k * k * o_.input[2];
    std::vector<ParameterSpec> all{{.name = name() + ".weight",
                                    .shape = {o_.outputs, k, k, o_.input[2]},
                                    .initial = o_.initial,
                                    .fan_in = fan_in,
                                    .deviation = o_.deviation,
                                    .matrix = true,
                                    .order = FileOrder::filters}};
    if (o_.bias) {
      const bool uniform = o_.initial == Initial::uniform_fan_in;
      all.push_back({.name = name() + ".bias",
                     .shape = {o_.outputs},
                     .initial = uniform ? Initial::uniform_fan_in : Initial::zero,
                     .fan_in = fan_in});
    }
    return all;
  }

  Shape output_shape() const override { return pooled_; }

  Flops flops() const override {
    const std::int64_t met = pixels_met(o_.input[0], full_[0], o_.geometry) *
                             pixels_met(o_.input[1], full_[1], o_.geometry);
    const double macs = 2.0 * static_cast<double>(met * o_.input[2] * o_.outputs);
    return {macs, macs, macs};
  }

  bool takes_operands() const override { return true; }

  std::int64_t saved_bytes() const override {
    return 4 * (o_.input.elements() + (o_.pool > 1 ? 2 * pooled_.elements() : 0) +
                (keeps_output() && !pools_after_ ? full_.elements() : 0));
  }

  // saved: x, then y (pooled where pools_after_) or z of the activation, then the winners where it
  // pools. Without activation or pooling x is enough.
  Tensor transform(
      const Pass& pass, Parameters w, LayerBuffers, const Tensor& x, Saved& saved) const override {
    Stream& stream = pass.stream;
    const std::int64_t rows = x.shape()[0];
    const Tensor image = operand(stream, x.reshape(with_batch(rows, o_.input)));
    const bool fused = derivative_from_output(o_.activation);
    Tensor y = stream.allocate(with_batch(rows, full_), stream.operand_type());
    convolution_forward(stream,
                        {.geometry = o_.geometry,
                         .x = image,
                         .w = w[0],
                         .bias = o_.bias ? w[1] : Tensor{},
                         .activation = fused ? o_.activation : ActivationKind::none,
                         .y = y});
    saved = {image, keeps_output() ? y : Tensor{}};
    if (!fused) {
      y = stream.allocate(saved[1].shape(), y.type());
      activation_forward(stream, o_.activation, saved[1], y);
    }
    if (o_.pool > 1) {
      Tensor pooled = stream.allocate(with_batch(rows, pooled_), y.type());
      Tensor winner = stream.allocate(with_batch(rows, pooled_), DType::int32);
      max_pool_forward(stream, pool_geometry(), y, pooled, winner);
      y = pooled;
      if (pools_after_) {
        saved[1] = pooled;
      }
      saved.push_back(winner);
    }
    return y;
  }

  Tensor transform_gradient(
      const Pass& pass, Parameters w, Saved& saved, Tensor dy, bool want_dx) const override {
    Stream& stream = pass.stream;
    const std::int64_t rows = dy.shape()[0];
    Tensor delta = dy.reshape(with_batch(rows, pooled_));
    dy = {};
    if (pools_after_) {
      delta = through_activation(stream, o_.activation, saved[1], std::move(delta));
    }
    if (o_.pool > 1) {
      Tensor full = stream.allocate(with_batch(rows, full_), delta.type());
      max_pool_backward(stream, pool_geometry(), delta, saved[2], full);
      delta = full;
    }
    if (!pools_after_) {
      delta = through_activation(stream, o_.activation, saved[1], std::move(delta));
    }
    delta = operand(stream, delta);
    saved = {saved[0], delta};
    if (!want_dx) {
      return {};
    }
    Tensor dx = stream.allocate(saved[0].shape(), saved[0].type());
    convolution_input_gradient(stream, o_.geometry, delta, w[0], dx);
    return dx;
  }

  void weight_gradient(Stream& stream, const Saved& saved, Gradients g) const override {
    convolution_weight_gradient(stream, o_.geometry, saved[0], saved[1], g[0].to, g[0].accumulate);
    if (o_.bias) {
      const Shape& s = saved[1].shape();
      column_sum(stream, saved[1].reshape({s[0] * s[1] * s[2], s[3]}), g[1].to, g[1].accumulate);
    }
  }

 private:
  ConvolutionGeometry pool_geometry() const { return {.kernel = o_.pool, .stride = o_.pool}; }

  bool keeps_output() const { return o_.activation != ActivationKind::none; }

  ConvolutionLayerOptions o_;
  Shape full_;  // (H', W', outputs) before pooling
  Shape pooled_;
  bool pools_after_;
  std::vector<ParameterSpec> parameters_;
};

/// What does the same in every channel and every sample: images of one shape in, of another one out.
template <class Made>
class Windowed : public PlainLayer {
 public:
  Windowed(std::string name, Shape input, ConvolutionGeometry geometry, Shape output)
      : PlainLayer(std::move(name)), input_(input), geometry_(geometry), output_(output) {}

  Shape output_shape() const override { return output_; }

  std::optional<LayerPart> part(const Held& in, const WidthPart& part) const override {
    if (in.holding == Holding::sum) {
      return {};
    }
    LayerPart made{.out = in.holding, .groups = in.groups};
    if (in.holding == Holding::columns) {
      made.layer = std::make_shared<Made>(name(), columns_of(in.whole, part), geometry_);
    }
    return made;
  }

  bool takes_operands() const override { return true; }

  std::int64_t saved_bytes() const override { return 0; }

 protected:
  /// `x` (B, from) as `kernel` makes it (B, to).
  Tensor pooled(const Pass& pass,
                decltype(average_pool_forward)& kernel,
                const Tensor& x,
                const Shape& from,
                const Shape& to) const {
    const std::int64_t rows = x.shape()[0];
    Tensor y = pass.stream.allocate(with_batch(rows, to), x.type());
    kernel(pass.stream, geometry_, x.reshape(with_batch(rows, from)), y);
    return y;
  }

  Shape input_;  // (H, W, C)
  ConvolutionGeometry geometry_;
  Shape output_;
};

class MaxPool final : public Windowed<MaxPool> {
 public:
  MaxPool(std::string name, Shape input, ConvolutionGeometry geometry)
      : Windowed(std::move(name), input, geometry, windows(input, geometry, input[2])) {}

  std::int64_t saved_bytes() const override { return 4 * output_.elements(); }

  Tensor transform(
      const Pass& pass, Parameters, LayerBuffers, const Tensor& x, Saved& saved) const override {
    const std::int64_t rows = x.shape()[0];
    const Tensor y = pass.stream.allocate(with_batch(rows, output_), x.type());
    saved = {pass.stream.allocate(with_batch(rows, output_), DType::int32)};
    max_pool_forward(pass.stream, geometry_, x.reshape(with_batch(rows, input_)), y, saved[0]);
    return y;
  }

  Tensor transform_gradient(
      const Pass& pass, Parameters, Saved& saved, Tensor dy, bool want_dx) const override {
    Tensor dx;
    if (want_dx) {
      const std::int64_t rows = dy.shape()[0];
      dx = pass.stream.allocate(with_batch(rows, input_), dy.type());
      max_pool_backward(
          pass.stream, geometry_, dy.reshape(with_batch(rows, output_)), saved[0], dx);
    }
    saved.clear();
    return dx;
  }
};

class AveragePool final : public Windowed<AveragePool> {
 public:
  AveragePool(std::string name, Shape input, ConvolutionGeometry geometry)
      : Windowed(std::move(name), input, geometry, windows(input, geometry, input[2])) {}

  Tensor transform(
      const Pass& pass, Parameters, LayerBuffers, const Tensor& x, Saved&) const override {
    return pooled(pass, average_pool_forward, x, input_, output_);
  }

  Tensor transform_gradient(
      const Pass& pass, Parameters, Saved&, Tensor dy, bool want_dx) const override {
    return want_dx ? pooled(pass, average_pool_backward, dy, output_, input_) : Tensor{};
  }
};

/// Four times what the mean over windows of 2 x 2 does backwards, and the other way round: exact, as 4 is a power of 2.
class Upsample final : public Windowed<Upsample> {
 public:
  static constexpr ConvolutionGeometry kTwoByTwo{.kernel = 2, .stride = 2};

  Upsample(std::string name, Shape input, ConvolutionGeometry geometry)
      : Windowed(std::move(name), input, geometry, {2 * input[0], 2 * input[1], input[2]}) {}

  bool takes_operands() const override { return false; }

  Tensor transform(
      const Pass& pass, Parameters, LayerBuffers, const Tensor& x, Saved&) const override {
    const Tensor fourfold = pass.stream.allocate(with_batch(x.shape()[0], input_));
    copy(pass.stream, x.reshape(fourfold.shape()), fourfold);
    scale(pass.stream, fourfold, 4);
    return pooled(pass, average_pool_backward, fourfold, input_, output_);
  }

  Tensor transform_gradient(
      const Pass& pass, Parameters, Saved&, Tensor dy, bool want_dx) const override {
    if (!want_dx) {
      return {};
    }
    const Tensor dx = pooled(pass, average_pool_forward, dy, output_, input_);
    scale(pass.stream, dx, 4);
    return dx;
  }
};

}  // namespace

std::shared_ptr<const Layer> convolution_layer(std::string name,
                                               const ConvolutionLayerOptions& options) {
  return std::make_shared<Convolution>(std::move(name), options);
}

std::shared_ptr<const Layer> max_pool_layer(std::string name,
                                            Shape input,
                                            ConvolutionGeometry geometry) {
  return std::make_shared<MaxPool>(std::move(name), input, geometry);
}

std::shared_ptr<const Layer> average_pool_layer(std::string name,
                                                Shape input,
                                                ConvolutionGeometry geometry) {
  return std::make_shared<AveragePool>(std::move(name), input, geometry);
}

std::shared_ptr<const Layer> upsample_layer(std::string name, Shape input) {
  return std::make_shared<Upsample>(std::move(name), input, Upsample::kTwoByTwo);
}

}  // namespace troupe
