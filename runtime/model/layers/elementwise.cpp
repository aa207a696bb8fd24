#include "kernels/dropout.hpp"
#include "runtime/model/layers.hpp"

#include <utility>

namespace troupe {
namespace {

class Activation final : public PlainLayer {
 public:
  Activation(std::string name, Shape input, ActivationKind kind)
      : PlainLayer(std::move(name)), input_(input), kind_(kind) {}

  Shape output_shape() const override { return input_; }

  std::optional<LayerPart> part(const Held& in, const WidthPart& part) const override {
    if (in.holding == Holding::sum) {
      return {};
    }
    LayerPart made{.out = in.holding, .groups = in.groups};
    if (in.holding == Holding::columns) {
      made.layer = std::make_shared<Activation>(name(), columns_of(in.whole, part), kind_);
    }
    return made;
  }

  Flops flops() const override {
    const auto n = static_cast<double>(input_.elements());
    return {n, n, 0};
  }

  bool takes_operands() const override { return true; }

  std::int64_t saved_bytes() const override { return 4 * input_.elements(); }

  Tensor transform(
      const Pass& pass, Parameters, LayerBuffers, const Tensor& x, Saved& saved) const override {
    const Tensor y = pass.stream.allocate(x.shape(), x.type());
    activation_forward(pass.stream, kind_, x, y);
    saved = {derivative_from_output(kind_) ? y : x};
    return y;
  }

  Tensor transform_gradient(
      const Pass& pass, Parameters, Saved& saved, Tensor dy, bool want_dx) const override {
    const Tensor of = std::move(saved[0]);
    saved.clear();
    if (!want_dx) {
      return {};
    }
    Tensor same = dy.reshape(of.shape());
    dy = {};
    return through_activation(pass.stream, kind_, of, std::move(same));
  }

 private:
  Shape input_;
  ActivationKind kind_;
};

class GatedUnit final : public PlainLayer {
 public:
  GatedUnit(std::string name, Shape input, ActivationKind kind)
      : PlainLayer(std::move(name)), input_(input), kind_(kind) {}

  Shape output_shape() const override {
    Shape shape;
    for (int i = 0; i < input_.dimensions(); ++i) {
      shape.push_back(i + 1 < input_.dimensions() ? input_[i] : input_[i] / 2);
    }
    return shape;
  }

  /// Its own columns of both halves.
  std::optional<LayerPart> part(const Held& in, const WidthPart& part) const override {
    if (in.holding == Holding::rows && in.groups.empty()) {
      return LayerPart{};
    }
    const std::int64_t half = input_.back() / 2;
    if (in.holding != Holding::columns || in.groups != std::vector<std::int64_t>{half, half}) {
      return {};
    }
    return LayerPart{.layer = std::make_shared<GatedUnit>(name(), columns_of(input_, part), kind_),
                     .out = Holding::columns};
  }

  Flops flops() const override {
    const auto n = static_cast<double>(input_.elements());
    return {n, 2 * n, 0};
  }

  bool takes_operands() const override { return true; }

  std::int64_t saved_bytes() const override { return 4 * input_.elements(); }

  Tensor transform(
      const Pass& pass, Parameters, LayerBuffers, const Tensor& x, Saved& saved) const override {
    const Tensor y = pass.stream.allocate(with_batch(x.shape()[0], output_shape()), x.type());
    gate_forward(pass.stream, kind_, rows(x, input_), rows(y, output_shape()));
    saved = {x};
    return y;
  }

  Tensor transform_gradient(
      const Pass& pass, Parameters, Saved& saved, Tensor dy, bool want_dx) const override {
    const Tensor x = std::move(saved[0]);
    saved.clear();
    Tensor dx;
    if (want_dx) {
      dx = pass.stream.allocate(x.shape(), x.type());
      gate_backward(
          pass.stream, kind_, rows(x, input_), rows(dy, output_shape()), rows(dx, input_));
    }
    return dx;
  }

 private:
  static Tensor rows(const Tensor& x, const Shape& sample) {
    return x.reshape({x.elements() / sample.back(), sample.back()});
  }

  Shape input_;
  ActivationKind kind_;
};

class Dropout final : public PlainLayer {
 public:
  Dropout(std::string name, Shape input, double rate)
      : PlainLayer(std::move(name)), input_(input), rate_(static_cast<float>(rate)) {}

  Shape output_shape() const override { return input_; }

  /// It is keyed by sample.
  std::optional<LayerPart> part(const Held& in, const WidthPart& /*part*/) const override {
    return in.holding == Holding::rows ? std::optional(LayerPart{}) : std::nullopt;
  }

  Flops flops() const override {
    const auto n = static_cast<double>(input_.elements());
    return {n, n, 0};
  }

  bool takes_operands() const override { return true; }

  std::int64_t saved_bytes() const override { return 0; }

  Tensor transform(
      const Pass& pass, Parameters, LayerBuffers, const Tensor& x, Saved&) const override {
    return pass.training ? mask(pass, x) : x;
  }

  Tensor transform_gradient(
      const Pass& pass, Parameters, Saved&, Tensor dy, bool want_dx) const override {
    return want_dx ? mask(pass, dy) : Tensor{};
  }

 private:
  Tensor mask(const Pass& pass, const Tensor& x) const {
    const RandomStream random(pass.seed, Purpose::dropout, name_key(name().data(), name().size()));
    const auto first = static_cast<std::uint64_t>(pass.first_sample * input_.elements());
    const Tensor y = pass.stream.allocate(x.shape(), x.type());
    dropout(pass.stream, random, first, rate_, x, y);
    return y;
  }

  Shape input_;
  float rate_;
};

}  // namespace

std::shared_ptr<const Layer> activation_layer(std::string name,
                                              Shape input,
                                              ActivationKind activation) {
  return std::make_shared<Activation>(std::move(name), input, activation);
}

std::shared_ptr<const Layer> gate_layer(std::string name, Shape input, ActivationKind activation) {
  return std::make_shared<GatedUnit>(std::move(name), input, activation);
}

std::shared_ptr<const Layer> dropout_layer(std::string name, Shape input, double rate) {
  return std::make_shared<Dropout>(std::move(name), input, rate);
}

}  // namespace troupe
