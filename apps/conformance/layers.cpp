// Whether a layer keeps what the runtime promises of it.
#include "apps/conformance/kits.hpp"
#include "experiment.pb.h"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe::conformance {
namespace {

using Numbers = std::vector<float>;

class LayerKit {
 public:
  LayerKit(std::shared_ptr<const Layer> layer, Shape input)
      : layer_(std::move(layer)), specs_(layer_->parameters()) {
    BundleShape after{{"x", input}};
    layer_->shapes(after);
    inputs_.push_back(drawn(with_batch(kRows, input).elements(), 0));
    shapes_.push_back(with_batch(kRows, input));
    output_ = with_batch(kRows, after.front().shape);
    dy_ = drawn(output_.elements(), 1);
    for (const ParameterSpec& spec : specs_) {
      Numbers w = drawn(spec.shape.elements(), 2 + inputs_.size());
      for (float& value : w) {
        value = (spec.initial == Initial::one ? 1 : 0) + 0.3f * value;
      }
      inputs_.push_back(std::move(w));
      shapes_.push_back(spec.shape);
    }
  }

  std::vector<Finding> run() {
    return {caught("pure", [&] { return pure(); }),
            caught("gradient", [&] { return gradient(); }),
            caught("adds", [&] { return adds(); })};
  }

 private:
  static constexpr std::int64_t kRows = 5;

  Pass pass() { return {.stream = stream_, .training = true, .seed = 1, .first_sample = 0}; }

  std::vector<Tensor> weights(const std::vector<Numbers>& inputs) {
    std::vector<Tensor> w;
    for (std::size_t i = 1; i < inputs.size(); ++i) {
      w.push_back(from_host(stream_, inputs[i], shapes_[i]));
    }
    return w;
  }

  std::vector<double> forward(const std::vector<Numbers>& inputs, Saved& saved) {
    Bundle bundle{{"x", from_host(stream_, inputs[0], shapes_[0])}};
    const std::vector<Tensor> w = weights(inputs);
    std::vector<Tensor> buffers;
    for (const ParameterSpec& spec : layer_->buffers()) {
      buffers.push_back(stream_.allocate(spec.shape));
      fill(stream_, buffers.back(), spec.initial == Initial::one ? 1 : 0);
    }
    layer_->forward(pass(), w, buffers, bundle, saved);
    TROUPE_CHECK(bundle.front().tensor.shape() == output_,
                 "its output has another shape than it says");
    return to_host(bundle.front().tensor);
  }

  double loss(const std::vector<Numbers>& inputs) {
    Saved saved;
    const std::vector<double> y = forward(inputs, saved);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      sum += y[i] * dy_[i];
    }
    return sum;
  }

  /// Of x and each parameter, added to `start` where that is not empty.
  std::vector<std::vector<double>> gradients(float start, bool accumulate) {
    Saved saved;
    forward(inputs_, saved);
    Bundle error{{"x", from_host(stream_, dy_, output_)}};
    const std::vector<Tensor> w = weights(inputs_);
    layer_->input_gradient(pass(), w, saved, error, true);
    std::vector<std::vector<double>> all{to_host(error.front().tensor)};
    std::vector<Gradient> to;
    for (const Tensor& one : w) {
      const auto size = static_cast<std::size_t>(one.elements());
      to.push_back({from_host(stream_, Numbers(size, start), one.shape()), accumulate});
    }
    layer_->weight_gradient(stream_, saved, to);
    for (const Gradient& g : to) {
      all.push_back(to_host(g.to));
    }
    return all;
  }

  Finding pure() {
    Saved saved;
    const bool same = forward(inputs_, saved) == forward(inputs_, saved);
    return {"pure", same, concat("two equal forwards: ", same ? "equal" : "different", " outputs")};
  }

  /// Along random directions, beside central differences.
  Finding gradient() {
    constexpr float kStep = 1e-3f;
    constexpr double kOff = 0.03;
    constexpr std::uint64_t kDirections = 16;
    const auto g = gradients(0, false);
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      double off = 0;
      double size = 0;
      for (std::uint64_t d = 0; d < kDirections; ++d) {
        const Numbers along = drawn(static_cast<std::int64_t>(inputs_[i].size()), 100 + d);
        std::vector<Numbers> up = inputs_;
        std::vector<Numbers> down = inputs_;
        double said = 0;
        for (std::size_t k = 0; k < along.size(); ++k) {
          up[i][k] += kStep * along[k];
          down[i][k] -= kStep * along[k];
          said += g[i].at(k) * (up[i][k] - down[i][k]);
        }
        const double found = loss(up) - loss(down);
        off += (found - said) * (found - said);
        size += std::max(found * found, said * said);
      }
      if (!(off <= kOff * kOff * size)) {
        return {"gradient",
                false,
                fill_in("the gradient by {} is off by {} % of what differences say",
                        i == 0 ? std::string("x") : specs_[i - 1].name,
                        std::round(100 * std::sqrt(off / size)))};
      }
    }
    return {"gradient", true, concat("by x and ", specs_.size(), " parameters as differences say")};
  }

  Finding adds() {
    if (specs_.empty()) {
      return {"adds", true, "it has no parameters", false};
    }
    const auto alone = gradients(7, false);
    const auto added = gradients(7, true);
    for (std::size_t i = 1; i < alone.size(); ++i) {
      for (std::size_t k = 0; k < alone[i].size(); ++k) {
        if (std::abs(alone[i][k] + 7 - added[i][k]) > 1e-4 * (7 + std::abs(alone[i][k]))) {
          return {"adds", false, "it does not add to the gradients of earlier micro-batches"};
        }
      }
    }
    return {"adds", true, "it adds to the gradients of earlier micro-batches"};
  }

  Stream stream_{Device{}};
  std::shared_ptr<const Layer> layer_;
  std::vector<ParameterSpec> specs_;
  std::vector<Numbers> inputs_;  // x, then each parameter
  std::vector<Shape> shapes_;
  Shape output_;
  Numbers dy_;
};

}  // namespace

Result<std::vector<Finding>> check_layer_conformance(const LayerScheme& scheme,
                                                     const ConformanceOptions& options) {
  proto::Experiment given;
  for (const std::string& value : options.values) {
    TROUPE_TRY(set_value(given, "optimizer.custom.values." + value));
  }
  const proto::CustomScheme& values = given.optimizer().custom();
  TROUPE_TRY(check_options(scheme.info, values, "layer"));
  Error why;
  for (const Shape& input : {Shape{12}, Shape{6, 8}, Shape{6, 6, 3}}) {
    auto made = scheme.make("layer", {{"x", input}}, OptionValues(scheme.info.options, values));
    if (made) {
      return LayerKit(*std::move(made), input).run();
    }
    why = made.error();
  }
  return why;
}

}  // namespace troupe::conformance
