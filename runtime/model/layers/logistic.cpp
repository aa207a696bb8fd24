#include "kernels/matmul.hpp"
#include "runtime/model/layers.hpp"

#include <array>
#include <utility>

namespace troupe {
namespace {

/// On a dense batch. Sparse Hogwild knows this layer by its parameter alone (kernels/sparse.hpp).
class Logistic final : public PlainLayer {
 public:
  Logistic(std::string name, std::int64_t features)
      : PlainLayer(std::move(name)), features_(features) {}

  std::vector<ParameterSpec> parameters() const override {
    return {{.name = name() + ".weight", .shape = {features_}, .initial = Initial::zero}};
  }

  Shape output_shape() const override { return {2}; }

  Flops flops() const override {
    const auto n = static_cast<double>(features_);
    return {2 * n, 2 * n, 2 * n};
  }

  std::int64_t saved_bytes() const override { return 4 * features_; }

  Tensor transform(
      const Pass& pass, Parameters w, LayerBuffers, const Tensor& x, Saved& saved) const override {
    Stream& stream = pass.stream;
    const std::int64_t rows = x.shape()[0];
    const Tensor z = stream.allocate({rows, 1});
    matmul(stream, x.reshape({rows, features_}), w[0].reshape({features_, 1}), z);
    Tensor y = stream.allocate({rows, 2});
    matmul(stream, z, second(stream), y);
    saved = {x, {}};
    return y;
  }

  Tensor transform_gradient(
      const Pass& pass, Parameters w, Saved& saved, Tensor dy, bool want_dx) const override {
    Stream& stream = pass.stream;
    const std::int64_t rows = dy.shape()[0];
    saved[1] = stream.allocate({rows, 1});
    matmul(stream, dy, second(stream), saved[1], {.transpose_b = true});
    if (!want_dx) {
      return {};
    }
    Tensor dx = stream.allocate({rows, features_});
    matmul(stream, saved[1], w[0].reshape({1, features_}), dx);
    return dx;
  }

  void weight_gradient(Stream& stream, const Saved& saved, Gradients g) const override {
    const std::int64_t rows = saved[0].shape()[0];
    matmul(stream,
           saved[0].reshape({rows, features_}),
           saved[1],
           g[0].to.reshape({features_, 1}),
           {.transpose_a = true, .accumulate = g[0].accumulate});
  }

 private:
  /// (1, 2): the column that z becomes.
  static Tensor second(Stream& stream) {
    return from_host(stream, std::array<float, 2>{0.0f, 1.0f}, {1, 2});
  }

  std::int64_t features_;
};

}  // namespace

std::shared_ptr<const Layer> logistic_layer(std::string name, std::int64_t features) {
  return std::make_shared<Logistic>(std::move(name), features);
}

}  // namespace troupe
