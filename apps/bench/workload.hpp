// What the benches train: a network, and noise of the right shape.
#pragma once

#include "apps/topologies/blueprint.hpp"
#include "kernels/device.hpp"
#include "messages/sections.hpp"
#include "runtime/data/dataset.hpp"
#include "runtime/model/network.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace troupe {

/// A network and the batch it is trained on. The samples are noise: no kernel's time depends on
/// them.
struct Workload {
  std::string model;  // textproto of an experiment's model: "lenet5 {}"
  Shape sample;       // (H, W, C), or (T) for tokens
  std::int64_t batch = 128;
  int classes = 10;  // or the vocabulary
  bool tokens = false;
};

/// As many samples as a batch has: normal values or uniform tokens, uniform labels. Made once, so
/// that gathering them is a copy.
std::shared_ptr<const Dataset> noise(const Workload& workload);

/// Of an experiment that is right.
Blueprint bench_blueprint(const std::string& text);

/// SGD with momentum in `stages` stages, one mini-batch under way in each; resolved.
BoxedExperiment experiment_of(const Workload& workload, int stages = 1);

Network network_of(const proto::Model& model, const Dataset& data);

/// Such a pipeline of actors on `device`, cut by FLOPs. `data`: as noise() makes it.
Blueprint blueprint_of(const Workload& workload,
                       const std::shared_ptr<const Dataset>& data,
                       int stages,
                       Device device = {},
                       Precision precision = Precision::fp32);

/// Seconds of an update, of `updates` on the real clock, the pipeline being full.
double seconds_per_update(Blueprint blueprint, std::int64_t updates);

}  // namespace troupe
