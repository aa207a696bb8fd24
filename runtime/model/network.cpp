#include "runtime/model/network.hpp"

#include "messages/experiment.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe {
namespace {

ActivationKind kind_of(proto::Activation activation) {
  switch (activation) {
    case proto::relu:
      return ActivationKind::relu;
    case proto::tanh:
      return ActivationKind::tanh;
    case proto::gelu:
      return ActivationKind::gelu;
  }
  TROUPE_CHECK(false, "an activation without a kernel: ", activation);
}

void add_dense(Network& network,
               std::int64_t inputs,
               const google::protobuf::RepeatedField<std::int64_t>& hidden,
               std::int64_t outputs,
               ActivationKind activation,
               Initial initial) {
  int number = 1;
  const auto name = [&] {
    return "dense" + std::to_string(number++);
  };
  for (const std::int64_t width : hidden) {
    network.layers.push_back(dense_layer(name(), inputs, width, activation, initial));
    inputs = width;
  }
  network.layers.push_back(dense_layer(name(), inputs, outputs, ActivationKind::none, initial));
}

/// LeNet-5 (LeCun et al. 1998) as it is used today: full connections between the maps, max pooling.
void add_lenet5(Network& network, std::int64_t outputs, ActivationKind activation) {
  ConvolutionLayerOptions first{.input = network.input,
                                .outputs = 6,
                                .geometry = {.kernel = 5, .padding = 2},
                                .activation = activation,
                                .pool = 2};
  network.layers.push_back(convolution_layer("conv1", first));
  ConvolutionLayerOptions second{.input = network.layers.back()->output_shape(),
                                 .outputs = 16,
                                 .geometry = {.kernel = 5},
                                 .activation = activation,
                                 .pool = 2};
  network.layers.push_back(convolution_layer("conv2", second));
  google::protobuf::RepeatedField<std::int64_t> hidden;
  hidden.Add(120);
  hidden.Add(84);
  add_dense(network,
            network.layers.back()->output_shape().elements(),
            hidden,
            outputs,
            activation,
            Initial::uniform_fan_in);
}

void add_quadratic(Network& network, const proto::Quadratic& options) {
  std::vector<double> curvatures;
  const std::int64_t n = options.dimensions();
  for (std::int64_t i = 0; i < n; ++i) {
    const double at = n > 1 ? static_cast<double>(i) / static_cast<double>(n - 1) : 0;
    curvatures.push_back(options.curvature() * std::pow(options.condition(), at));
  }
  for (std::int64_t i = 1; i <= options.layers(); ++i) {
    network.layers.push_back(quadratic_layer("quadratic" + std::to_string(i), curvatures));
  }
}

}  // namespace

std::int64_t Network::parameters() const {
  std::int64_t n = 0;
  for (const auto& layer : layers) {
    for (const ParameterSpec& p : layer->parameters()) {
      n += p.shape.elements();
    }
  }
  return n;
}

Flops Network::flops() const {
  Flops all;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Flops f = layers[i]->flops();
    all.forward += f.forward;
    all.input_gradient +=
        i == 0 ? 0 : f.input_gradient;  // nobody asks for the gradient of the data
    all.weight_gradient += f.weight_gradient;
  }
  return all;
}

Result<Network> build_network(const proto::Model& model, const Dataset& data) {
  Network network;
  network.input = data.sample_shape();
  const std::int64_t outputs = data.classes() > 0 ? data.classes() : data.values();
  network.loss = data.classes() > 0 ? Loss::cross_entropy : Loss::squared_error;
  const std::int64_t inputs = network.input.elements();
  if (model.has_quadratic()) {
    if (inputs != 1 || data.classes() > 0) {
      return Error{ErrorKind::usage,
                   "model: quadratic has no use for data; select it with data: none"};
    }
    network.loss = Loss::sum;
    add_quadratic(network, model.quadratic());
    return network;
  }
  if (model.has_linear()) {
    add_dense(network, inputs, {}, outputs, ActivationKind::none, Initial::uniform_fan_in);
  } else if (model.has_snn()) {
    add_dense(network,
              inputs,
              model.snn().hidden(),
              outputs,
              ActivationKind::selu,
              Initial::lecun_normal);
  } else if (model.has_lenet5()) {
    if (network.input.dimensions() != 3 || network.input[0] < 16 || network.input[1] < 16) {
      return Error{ErrorKind::usage,
                   concat("model: lenet5 needs images of at least 16x16; the data's samples are ",
                          network.input)};
    }
    add_lenet5(network, outputs, kind_of(model.lenet5().activation()));
  } else {
    add_dense(network,
              inputs,
              model.mlp().hidden(),
              outputs,
              kind_of(model.mlp().activation()),
              Initial::uniform_fan_in);
  }
  return network;
}

Result<std::vector<std::int64_t>> cut_network(const Network& network,
                                              std::int32_t chunks,
                                              const std::vector<std::int64_t>& cut) {
  const auto layers = static_cast<std::int64_t>(network.layers.size());
  if (chunks > layers) {
    return Error{ErrorKind::usage,
                 concat("pipeline.stages: the network has ",
                        layers,
                        " layers, too few for ",
                        chunks,
                        " chunks; set pipeline.stages to at most ",
                        layers,
                        " or use a deeper model")};
  }
  if (!cut.empty()) {
    std::vector<std::int64_t> first{0};
    first.insert(first.end(), cut.begin(), cut.end());
    bool rising = true;
    for (std::size_t i = 1; i < first.size(); ++i) {
      rising &= first[i] > first[i - 1] && first[i] < layers;
    }
    if (static_cast<std::int32_t>(first.size()) != chunks || !rising) {
      return Error{ErrorKind::usage,
                   concat("pipeline.cut: ",
                          chunks,
                          " chunks need ",
                          chunks - 1,
                          " rising indices between 1 and ",
                          layers - 1)};
    }
    return first;
  }
  // best[c][i]: the least cost of the costliest of c chunks over the first i layers.
  std::vector<double> sum(static_cast<std::size_t>(layers) + 1);
  for (std::int64_t i = 0; i < layers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    sum[at + 1] = sum[at] + std::max(1.0, network.layers[at]->flops().total());
  }
  const double infinite = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(static_cast<std::size_t>(chunks) + 1,
                                        std::vector<double>(sum.size(), infinite));
  std::vector<std::vector<std::size_t>> from(best.size(), std::vector<std::size_t>(sum.size()));
  best[0][0] = 0;
  for (std::size_t c = 1; c < best.size(); ++c) {
    for (std::size_t i = c; i < sum.size(); ++i) {
      for (std::size_t s = c - 1; s < i; ++s) {
        const double cost = std::max(best[c - 1][s], sum[i] - sum[s]);
        if (cost < best[c][i]) {
          best[c][i] = cost;
          from[c][i] = s;
        }
      }
    }
  }
  std::vector<std::int64_t> first(static_cast<std::size_t>(chunks));
  std::size_t i = sum.size() - 1;
  for (std::size_t c = static_cast<std::size_t>(chunks); c >= 1; --c) {
    i = from[c][i];
    first[c - 1] = static_cast<std::int64_t>(i);
  }
  return first;
}

}  // namespace troupe
