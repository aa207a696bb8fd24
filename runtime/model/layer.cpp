#include "runtime/model/layer.hpp"

#include "kernels/matmul.hpp"

#include <utility>

namespace troupe {
namespace {

Shape with_batch(std::int64_t rows, const Shape& sample) {
  Shape shape{rows};
  for (int i = 0; i < sample.dimensions(); ++i) {
    shape.push_back(sample[i]);
  }
  return shape;
}

/// dy * f' in place where nobody else holds dy.
Tensor through_activation(Stream& stream, ActivationKind kind, const Tensor& saved, Tensor dy) {
  if (kind == ActivationKind::none) {
    return dy;
  }
  Tensor delta = dy.exclusive() ? dy : stream.allocate(dy.shape());
  activation_backward(stream, kind, saved, dy, delta);
  return delta;
}

class Dense final : public Layer {
 public:
  Dense(std::string name,
        std::int64_t inputs,
        std::int64_t outputs,
        ActivationKind activation,
        Initial initial)
      : Layer(std::move(name)),
        inputs_(inputs),
        outputs_(outputs),
        activation_(activation),
        initial_(initial) {}

  std::vector<ParameterSpec> parameters() const override {
    const Initial bias =
        initial_ == Initial::uniform_fan_in ? Initial::uniform_fan_in : Initial::zero;
    return {{name() + ".weight", {outputs_, inputs_}, initial_, inputs_},
            {name() + ".bias", {outputs_}, bias, inputs_}};
  }

  Shape output_shape() const override { return {outputs_}; }

  Flops flops() const override {
    const double macs = 2.0 * static_cast<double>(inputs_) * static_cast<double>(outputs_);
    return {macs, macs, macs};
  }

  std::int64_t saved_bytes() const override { return 4 * (inputs_ + outputs_); }

  Tensor forward(Stream& stream, Parameters w, const Tensor& x, Saved& saved) const override {
    const Tensor rows = x.reshape({x.shape()[0], inputs_});  // (B, inputs)
    Tensor y = stream.allocate({x.shape()[0], outputs_});
    const bool fused = derivative_from_output(activation_);
    matmul(stream,
           rows,
           w[0],
           y,
           {.transpose_b = true,
            .bias = w[1],
            .activation = fused ? activation_ : ActivationKind::none});
    if (fused) {
      saved = {rows, y};
      return y;
    }
    Tensor z = std::exchange(y, stream.allocate(y.shape()));
    activation_forward(stream, activation_, z, y);
    saved = {rows, z};
    return y;
  }

  Tensor input_gradient(
      Stream& stream, Parameters w, Saved& saved, Tensor dy, bool want_dx) const override {
    const Tensor delta = through_activation(stream, activation_, saved[1], std::move(dy));
    saved[1] = delta;  // (B, outputs)
    if (!want_dx) {
      return {};
    }
    Tensor dx = stream.allocate(saved[0].shape());
    matmul(stream, delta, w[0], dx);
    return dx;
  }

  void weight_gradient(Stream& stream,
                       const Saved& saved,
                       Parameters g,
                       bool accumulate) const override {
    matmul(stream, saved[1], saved[0], g[0], {.transpose_a = true, .accumulate = accumulate});
    column_sum(stream, saved[1], g[1], accumulate);
  }

 private:
  std::int64_t inputs_;
  std::int64_t outputs_;
  ActivationKind activation_;
  Initial initial_;
};

class Convolution final : public Layer {
 public:
  Convolution(std::string name, const ConvolutionLayerOptions& options)
      : Layer(std::move(name)), o_(options) {
    const std::int64_t h = o_.geometry.output(o_.input[0]);
    const std::int64_t w = o_.geometry.output(o_.input[1]);
    full_ = {h, w, o_.outputs};
    pooled_ = {h / o_.pool, w / o_.pool, o_.outputs};
    // Max pooling commutes with a rising function, so the derivative is taken on the smaller,
    // pooled output.
    pools_after_ = o_.pool > 1 && derivative_from_output(o_.activation);
  }

  std::vector<ParameterSpec> parameters() const override {
    const std::int64_t k = o_.geometry.kernel;
    const std::int64_t fan_in = k * k * o_.input[2];
    return {{name() + ".weight", {o_.outputs, k, k, o_.input[2]}, Initial::uniform_fan_in, fan_in},
            {name() + ".bias", {o_.outputs}, Initial::uniform_fan_in, fan_in}};
  }

  Shape output_shape() const override { return pooled_; }

  Flops flops() const override {
    const double macs = 2.0 * static_cast<double>(full_.elements() * o_.geometry.kernel *
                                                  o_.geometry.kernel * o_.input[2]);
    return {macs, macs, macs};
  }

  std::int64_t saved_bytes() const override {
    return 4 * (o_.input.elements() + (o_.pool > 1 ? 2 * pooled_.elements() : 0) +
                (pools_after_ ? 0 : full_.elements()));
  }

  // saved: x, then y (pooled where pools_after_) or z of the activation, then the winners where it
  // pools.
  Tensor forward(Stream& stream, Parameters w, const Tensor& x, Saved& saved) const override {
    const std::int64_t rows = x.shape()[0];
    const Tensor image = x.reshape(with_batch(rows, o_.input));
    const bool fused = derivative_from_output(o_.activation);
    Tensor y = stream.allocate(with_batch(rows, full_));
    convolution_forward(
        stream, o_.geometry, image, w[0], w[1], fused ? o_.activation : ActivationKind::none, y);
    saved = {image, y};
    if (!fused) {
      y = stream.allocate(saved[1].shape());
      activation_forward(stream, o_.activation, saved[1], y);
    }
    if (o_.pool > 1) {
      Tensor pooled = stream.allocate(with_batch(rows, pooled_));
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

  Tensor input_gradient(
      Stream& stream, Parameters w, Saved& saved, Tensor dy, bool want_dx) const override {
    const std::int64_t rows = dy.shape()[0];
    Tensor delta = dy.reshape(with_batch(rows, pooled_));
    dy = {};
    if (pools_after_) {
      delta = through_activation(stream, o_.activation, saved[1], std::move(delta));
    }
    if (o_.pool > 1) {
      Tensor full = stream.allocate(with_batch(rows, full_));
      max_pool_backward(stream, pool_geometry(), delta, saved[2], full);
      delta = full;
    }
    if (!pools_after_) {
      delta = through_activation(stream, o_.activation, saved[1], std::move(delta));
    }
    saved = {saved[0], delta};
    if (!want_dx) {
      return {};
    }
    Tensor dx = stream.allocate(saved[0].shape());
    convolution_input_gradient(stream, o_.geometry, delta, w[0], dx);
    return dx;
  }

  void weight_gradient(Stream& stream,
                       const Saved& saved,
                       Parameters g,
                       bool accumulate) const override {
    convolution_weight_gradient(stream, o_.geometry, saved[0], saved[1], g[0], accumulate);
    const Shape& s = saved[1].shape();
    column_sum(stream, saved[1].reshape({s[0] * s[1] * s[2], s[3]}), g[1], accumulate);
  }

 private:
  ConvolutionGeometry pool_geometry() const { return {.kernel = o_.pool, .stride = o_.pool}; }

  ConvolutionLayerOptions o_;
  Shape full_;  // (H', W', outputs) before pooling
  Shape pooled_;
  bool pools_after_ = false;
};

class Quadratic final : public Layer {
 public:
  Quadratic(std::string name, std::vector<double> curvatures)
      : Layer(std::move(name)), curvatures_(std::move(curvatures)) {}

  std::vector<ParameterSpec> parameters() const override {
    return {{name() + ".weight", {size()}, Initial::one, 1}};
  }

  Shape output_shape() const override { return {1}; }

  Flops flops() const override {
    const double n = static_cast<double>(size());
    return {3 * n, 0, 2 * n};
  }

  std::int64_t saved_bytes() const override { return 4 * size(); }

  Tensor forward(Stream& stream, Parameters w, const Tensor& x, Saved& saved) const override {
    double value = 0;
    const auto values = w[0].span<float>();
    for (std::size_t i = 0; i < curvatures_.size(); ++i) {
      value += 0.5 * curvatures_[i] * values[i] * values[i];
    }
    Tensor y = stream.allocate(x.shape());
    for (std::size_t r = 0; r < y.span<float>().size(); ++r) {
      y.span<float>()[r] = x.span<float>()[r] + static_cast<float>(value);
    }
    saved = {w[0], {}};
    return y;
  }

  Tensor input_gradient(Stream&, Parameters, Saved& saved, Tensor dy, bool) const override {
    saved[1] = dy;
    return dy;
  }

  void weight_gradient(Stream&, const Saved& saved, Parameters g, bool accumulate) const override {
    double share = 0;  // sum over the rows of dL/dy: 1 for a mean
    for (const float d : saved[1].span<float>()) {
      share += d;
    }
    const auto w = saved[0].span<float>();
    const auto out = g[0].span<float>();
    for (std::size_t i = 0; i < curvatures_.size(); ++i) {
      const auto gradient = static_cast<float>(share * curvatures_[i] * w[i]);
      out[i] = accumulate ? out[i] + gradient : gradient;
    }
  }

 private:
  std::int64_t size() const { return static_cast<std::int64_t>(curvatures_.size()); }

  std::vector<double> curvatures_;
};

}  // namespace

std::shared_ptr<const Layer> dense_layer(std::string name,
                                         std::int64_t inputs,
                                         std::int64_t outputs,
                                         ActivationKind activation,
                                         Initial initial) {
  return std::make_shared<Dense>(std::move(name), inputs, outputs, activation, initial);
}

std::shared_ptr<const Layer> convolution_layer(std::string name,
                                               const ConvolutionLayerOptions& options) {
  return std::make_shared<Convolution>(std::move(name), options);
}

std::shared_ptr<const Layer> quadratic_layer(std::string name, std::vector<double> curvatures) {
  return std::make_shared<Quadratic>(std::move(name), std::move(curvatures));
}

}  // namespace troupe
