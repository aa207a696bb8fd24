// troupe with one layer more: swish, y = x sigmoid(beta x), whose one beta is learnt (Ramachandran,
// Zoph & Le 2017, arXiv:1710.05941).
#include <apps/cli/program.hpp>
#include <experiment.pb.h>
#include <messages/experiment.hpp>
#include <runtime/model/registry.hpp>

#include <cmath>
#include <iostream>
#include <memory>
#include <utility>

namespace {

using namespace troupe;

class Swish final : public PlainLayer {
 public:
  Swish(std::string name, Shape input) : PlainLayer(std::move(name)), input_(input) {}

  std::vector<ParameterSpec> parameters() const override {
    return {{.name = name() + ".beta", .shape = {1}, .initial = Initial::one}};
  }

  Shape output_shape() const override { return input_; }

  std::int64_t saved_bytes() const override { return 4 * input_.elements(); }

  Tensor transform(const Pass& pass,
                   Parameters w,
                   std::span<Tensor>,
                   const Tensor& x,
                   Saved& saved) const override {
    const float beta = w[0].span<float>()[0];
    const Tensor y = pass.stream.allocate(x.shape());
    for (std::size_t i = 0; i < y.span<float>().size(); ++i) {
      const float value = x.span<float>()[i];
      y.span<float>()[i] = value * sigmoid(beta * value);
    }
    saved = {x};
    return y;
  }

  /// With s = sigmoid(beta x): dy/dx = s + beta x s (1 - s), dy/dbeta = x^2 s (1 - s).
  Tensor transform_gradient(
      const Pass& pass, Parameters w, Saved& saved, Tensor dy, bool) const override {
    const float beta = w[0].span<float>()[0];
    const Tensor x = std::move(saved[0]);
    const Tensor dx = pass.stream.allocate(x.shape());
    double of_beta = 0;
    for (std::size_t i = 0; i < dx.span<float>().size(); ++i) {
      const float value = x.span<float>()[i];
      const float s = sigmoid(beta * value);
      const float slope = value * s * (1 - s);
      of_beta += static_cast<double>(dy.span<float>()[i] * value * slope);
      dx.span<float>()[i] = dy.span<float>()[i] * (s + beta * slope);
    }
    saved = {pass.stream.allocate({1})};  // what weight_gradient needs
    saved[0].span<float>()[0] = static_cast<float>(of_beta);
    return dx;
  }

  void weight_gradient(Stream&, const Saved& saved, std::span<const Gradient> g) const override {
    float& to = g[0].to.span<float>()[0];
    to = saved[0].span<float>()[0] + (g[0].accumulate ? to : 0);
  }

 private:
  static float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

  Shape input_;  // of a sample
};

/// The loops above are over host memory.
Result<void> check(const proto::Experiment& experiment) {
  for (const std::string& device : experiment.placement().devices()) {
    if (device != "cpu") {
      return Error{ErrorKind::usage, "placement.devices: swish runs on cpu, not on " + device};
    }
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const auto made = register_layer(
      {.info = {.name = "swish", .summary = "y = x sigmoid(beta x), beta learnt", .check = check},
       .make = [](const std::string& name, const BundleShape& input, const OptionValues&) {
         return Result<std::shared_ptr<const Layer>>(
             std::make_shared<Swish>(name, input.front().shape));
       }});
  std::cerr << (made ? "" : made.error().message + '\n');
  return made ? run_command_line(argc, argv) : 2;
}
