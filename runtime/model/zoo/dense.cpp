// Networks of dense layers, and those of one formula; what all families share.
#include "experiment/model.pb.h"
#include "runtime/model/zoo/parts.hpp"

#include <cmath>

namespace troupe::zoo {

ActivationKind kind_of(proto::Activation activation) {
  return activation_named(proto::Activation_Name(activation));
}

Error refused(const std::string& what) {
  return {ErrorKind::usage, "model: " + what};
}

/// Images (H, W, C) of at least `side` squared.
Result<void> needs_images(const Network& network, std::string_view model, std::int64_t side) {
  const Shape& input = network.input;
  if (input.dimensions() != 3 || input[0] < side || input[1] < side) {
    return refused(concat(
        model, " needs images of at least ", side, "x", side, "; the data's samples are ", input));
  }
  return {};
}

Result<void> needs_tokens(const Network& network, std::string_view model) {
  if (!network.tokens) {
    return refused(concat(model, " needs tokens, such as data: text"));
  }
  return {};
}

DenseOptions head(const Network& network, std::int64_t outputs) {
  return {.inputs = network.shape().elements(), .outputs = outputs, .head = true};
}

Result<void> add_mlp(Network& network,
                     const std::vector<std::int64_t>& hidden,
                     std::int64_t outputs,
                     ActivationKind activation,
                     Initial initial) {
  int number = 1;
  const auto add = [&](std::int64_t width, ActivationKind kind, bool is_head) {
    network.add(dense_layer("dense" + std::to_string(number++),
                            {.inputs = network.shape().elements(),
                             .outputs = width,
                             .activation = kind,
                             .initial = initial,
                             .head = is_head}));
  };
  for (const std::int64_t width : hidden) {
    add(width, activation, false);
  }
  add(outputs, ActivationKind::none, true);
  return {};
}

Result<void> add_quadratic(Network& network, const proto::Quadratic& options) {
  std::vector<double> curvatures;
  const std::int64_t n = options.dimensions();
  for (std::int64_t i = 0; i < n; ++i) {
    const double at = n > 1 ? static_cast<double>(i) / static_cast<double>(n - 1) : 0;
    curvatures.push_back(options.curvature() * std::pow(options.condition(), at));
  }
  for (std::int64_t i = 1; i <= options.layers(); ++i) {
    network.add(quadratic_layer("quadratic" + std::to_string(i), curvatures));
  }
  return {};
}

Result<void> add_logistic(Network& network, std::int64_t outputs) {
  if (network.tokens || network.loss != Loss::cross_entropy || outputs != 2) {
    return Error{ErrorKind::usage, "model: logistic tells two classes apart, as data sparse has"};
  }
  network.add(logistic_layer("logistic", network.input.elements()));
  return {};
}

}  // namespace troupe::zoo
