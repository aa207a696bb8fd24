#include "runtime/model/layers.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

class Quadratic final : public PlainLayer {
 public:
  Quadratic(std::string name, std::vector<double> curvatures)
      : PlainLayer(std::move(name)), curvatures_(std::move(curvatures)) {}

  std::vector<ParameterSpec> parameters() const override {
    return {{.name = name() + ".weight", .shape = {size()}, .initial = Initial::one}};
  }

  Shape output_shape() const override { return {1}; }

  Flops flops() const override {
    const double n = static_cast<double>(size());
    return {3 * n, 0, 2 * n};
  }

  std::int64_t saved_bytes() const override { return 4 * size(); }

  Tensor transform(
      const Pass& pass, Parameters w, LayerBuffers, const Tensor& x, Saved& saved) const override {
    double value = 0;
    const auto values = w[0].span<float>();
    for (std::size_t i = 0; i < curvatures_.size(); ++i) {
      value += 0.5 * curvatures_[i] * values[i] * values[i];
    }
    Tensor y = pass.stream.allocate(x.shape());
    std::ranges::transform(x.span<float>(), y.span<float>().begin(), [value](float row) {
      return row + static_cast<float>(value);
    });
    saved = {w[0], {}};
    return y;
  }

  Tensor transform_gradient(const Pass&, Parameters, Saved& saved, Tensor dy, bool) const override {
    saved[1] = dy;
    return dy;
  }

  void weight_gradient(Stream&, const Saved& saved, Gradients g) const override {
    double share = 0;  // sum over the rows of dL/dy: 1 for a mean
    for (const float d : saved[1].span<float>()) {
      share += d;
    }
    const auto w = saved[0].span<float>();
    const auto out = g[0].to.span<float>();
    for (std::size_t i = 0; i < curvatures_.size(); ++i) {
      const auto gradient = static_cast<float>(share * curvatures_[i] * w[i]);
      out[i] = g[0].accumulate ? out[i] + gradient : gradient;
    }
  }

 private:
  std::int64_t size() const { return static_cast<std::int64_t>(curvatures_.size()); }

  std::vector<double> curvatures_;
};

}  // namespace

std::shared_ptr<const Layer> quadratic_layer(std::string name, std::vector<double> curvatures) {
  return std::make_shared<Quadratic>(std::move(name), std::move(curvatures));
}

}  // namespace troupe
