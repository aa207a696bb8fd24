// Skip connections: what forks off travels beside x in the bundle, across cuts too, and its
// gradient travels back the same way.
#include "kernels/elementwise.hpp"
#include "runtime/model/layers.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

template <class Entries>
auto find(Entries& entries, const std::string& name) {
  const auto found = std::find_if(
      entries.begin(), entries.end(), [&](const auto& entry) { return entry.name == name; });
  TROUPE_CHECK(found != entries.end(), "the bundle has no entry ", name);
  return found;
}

/// bfloat16 where both are.
DType sum_type(const Tensor& a, const Tensor& b) {
  return a.type() == b.type() ? a.type() : DType::float32;
}

/// The layer as it is, whatever it is given but summands.
std::optional<LayerPart> as_held(const Held& in) {
  return in.spread == Holding::sum
             ? std::nullopt
             : std::optional(LayerPart{.out = in.spread, .groups = in.groups});
}

class Fork final : public Layer {
 public:
  Fork(std::string name, std::string skip) : Layer(std::move(name)), skip_(std::move(skip)) {}

  std::string skip() const override { return skip_; }

  std::optional<LayerPart> part(const Held& in, const WidthPart& /*part*/) const override {
    return as_held(in);
  }

  void shapes(BundleShape& bundle) const override {
    bundle.push_back({skip_, bundle.front().shape, bundle.front().share});
  }

  bool takes_operands() const override { return true; }

  std::int64_t saved_bytes() const override { return 0; }

  void forward(const Pass&, Parameters, std::span<Tensor>, Bundle& bundle, Saved&) const override {
    bundle.push_back({skip_, bundle.front().tensor});
  }

  void input_gradient(
      const Pass& pass, Parameters, Saved&, Bundle& error, bool want_dx) const override {
    const auto found = find(error, skip_);
    const Tensor of_skip = std::move(found->tensor);
    error.erase(found);
    Tensor& dx = error.front().tensor;
    if (!want_dx) {
      dx = {};
      return;
    }
    const DType type = sum_type(dx, of_skip);
    const auto free = [&](const Tensor& x) {
      return x.exclusive() && x.type() == type;
    };
    const Tensor sum = free(dx)        ? dx
                       : free(of_skip) ? of_skip
                                       : pass.stream.allocate(dx.shape(), type);
    add(pass.stream, dx, of_skip, ActivationKind::none, sum);
    dx = sum;
  }

  void weight_gradient(Stream&, const Saved&, std::span<const Gradient>) const override {}

 private:
  std::string skip_;
};

class Join final : public Layer {
 public:
  Join(std::string name, std::string skip, Shape shape, ActivationKind activation)
      : Layer(std::move(name)), skip_(std::move(skip)), shape_(shape), activation_(activation) {}

  std::string skip() const override { return skip_; }

  std::optional<LayerPart> part(const Held& in, const WidthPart& part) const override {
    std::optional<LayerPart> made = as_held(in);
    if (in.spread == Holding::columns) {
      made->layer = std::make_shared<Join>(name(), skip_, columns_of(shape_, part), activation_);
    }
    return made;
  }

  void shapes(BundleShape& bundle) const override { bundle.erase(find(bundle, skip_)); }

  bool takes_operands() const override { return true; }

  std::int64_t saved_bytes() const override {
    return activation_ == ActivationKind::none ? 0 : 4 * shape_.elements();
  }

  void forward(const Pass& pass,
               Parameters,
               std::span<Tensor>,
               Bundle& bundle,
               Saved& saved) const override {
    const auto found = find(bundle, skip_);
    const Tensor skip = std::move(found->tensor);
    bundle.erase(found);
    Tensor& x = bundle.front().tensor;
    const Tensor y = pass.stream.allocate(x.shape(), sum_type(x, skip));
    add(pass.stream, x, skip, activation_, y);
    if (activation_ != ActivationKind::none) {
      saved = {y};
    }
    x = y;
  }

  void input_gradient(
      const Pass& pass, Parameters, Saved& saved, Bundle& error, bool) const override {
    Tensor& x = error.front().tensor;
    if (activation_ != ActivationKind::none) {
      Tensor dy = std::move(x);
      x = through_activation(pass.stream, activation_, saved[0], std::move(dy));
      saved.clear();
    }
    error.push_back({skip_, x});
  }

  void weight_gradient(Stream&, const Saved&, std::span<const Gradient>) const override {}

 private:
  std::string skip_;
  Shape shape_;
  ActivationKind activation_;
};

/// Hands the inner layer a bundle in which the skip is x.
class OnSkip final : public Layer {
 public:
  OnSkip(std::string skip, std::shared_ptr<const Layer> layer)
      : Layer(layer->name()), skip_(std::move(skip)), layer_(std::move(layer)) {}

  std::string skip() const override { return skip_; }

  std::optional<LayerPart> part(const Held& in, const WidthPart& part) const override {
    std::optional<LayerPart> made = layer_->part(in, part);
    if (made && made->layer) {
      made->layer = std::make_shared<OnSkip>(skip_, made->layer);
    }
    return made;
  }

  std::vector<ParameterSpec> parameters() const override { return layer_->parameters(); }

  std::vector<ParameterSpec> buffers() const override { return layer_->buffers(); }

  void shapes(BundleShape& bundle) const override {
    const auto found = find(bundle, skip_);
    BundleShape alone{*found};
    layer_->shapes(alone);
    *found = alone.front();
  }

  Flops flops() const override { return layer_->flops(); }

  bool takes_operands() const override { return layer_->takes_operands(); }

  std::int64_t saved_bytes() const override { return layer_->saved_bytes(); }

  void forward(const Pass& pass,
               Parameters w,
               std::span<Tensor> buffers,
               Bundle& bundle,
               Saved& saved) const override {
    const auto found = find(bundle, skip_);
    Bundle alone{std::move(*found)};
    layer_->forward(pass, w, buffers, alone, saved);
    *found = std::move(alone.front());
  }

  void input_gradient(
      const Pass& pass, Parameters w, Saved& saved, Bundle& error, bool) const override {
    const auto found = find(error, skip_);
    Bundle alone;
    alone.push_back(std::move(*found));
    layer_->input_gradient(pass, w, saved, alone, true);
    *found = std::move(alone.front());
  }

  void weight_gradient(Stream& stream,
                       const Saved& saved,
                       std::span<const Gradient> g) const override {
    layer_->weight_gradient(stream, saved, g);
  }

 private:
  std::string skip_;
  std::shared_ptr<const Layer> layer_;
};

}  // namespace

std::shared_ptr<const Layer> fork_layer(std::string name, std::string skip) {
  return std::make_shared<Fork>(std::move(name), std::move(skip));
}

std::shared_ptr<const Layer> join_layer(std::string name,
                                        std::string skip,
                                        Shape shape,
                                        ActivationKind activation) {
  return std::make_shared<Join>(std::move(name), std::move(skip), shape, activation);
}

std::shared_ptr<const Layer> on_skip(std::string skip, std::shared_ptr<const Layer> layer) {
  return std::make_shared<OnSkip>(std::move(skip), std::move(layer));
}

}  // namespace troupe
