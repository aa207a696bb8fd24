#include "runtime/schemes/partition/costs.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace troupe::partition {

Error usage(std::string message) {
  return {ErrorKind::usage, "partition: " + std::move(message)};
}

Result<void> check(const PartitionProblem& p) {
  const auto layers = static_cast<std::int64_t>(p.layers.size());
  if (p.stages < 1 || p.stages > layers) {
    return usage(concat(layers, " layers cannot be cut into ", p.stages, " stages"));
  }
  if (p.devices != 0 && p.devices < p.stages) {
    return usage(concat(p.devices, " devices are too few for ", p.stages, " stages"));
  }
  if (!p.replicas.empty() &&
      (std::ssize(p.replicas) != p.stages ||
       std::accumulate(p.replicas.begin(), p.replicas.end(), std::int64_t{0}) !=
           std::max(p.devices, p.stages))) {
    return usage("replicas must be as many as stages, and their sum the devices");
  }
  if (p.micro_batches < 1 || p.parameter_copies < 0 || p.memory_max < 0) {
    return usage("micro_batches must be 1 or more, parameter_copies and memory_max 0 or more");
  }
  if (!(p.bandwidth > 0) || !(p.latency >= 0) || !std::isfinite(p.latency)) {
    return usage("bandwidth must be above 0, latency 0 or more and finite");
  }
  for (std::size_t i = 0; i < p.layers.size(); ++i) {
    const LayerProfile& layer = p.layers[i];
    const double least =
        std::min({layer.forward, layer.input_gradient, layer.weight_gradient, layer.update});
    if (!(least >= 0) || !std::isfinite(layer.seconds()) ||
        std::min({layer.output_bytes, layer.parameter_bytes, layer.saved_bytes}) < 0) {
      return usage(
          concat("the profile of layer ", i, " has a number that is negative or not finite"));
    }
  }
  for (const SkipProfile& skip : p.skips) {
    if (skip.from < 0 || skip.to >= layers || skip.bytes < 0) {
      return usage(
          concat("a skip from layer ", skip.from, " to ", skip.to, " is not in the network"));
    }
    if (skip.to <= skip.from) {
      return usage(concat(
          "the tensor from layer ", skip.from, " to ", skip.to, " would have to cross backwards"));
    }
  }
  return {};
}

}  // namespace troupe::partition
