#include "runtime/schemes/chunk_optimizer.hpp"

#include "experiment.pb.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {
namespace {

const OptimizerScheme& scheme_of(const proto::Experiment& experiment) {
  return experiment.pipeline().weights().has_spike_compensation()
             ? spike_compensation()
             : optimizer_scheme(experiment.optimizer());
}

}  // namespace

ChunkOptimizer::ChunkOptimizer(const proto::Experiment& experiment,
                               Rate rate,
                               std::int64_t delay,
                               std::int64_t synchronous)
    : scheme_(&scheme_of(experiment)),
      values_(scheme_->info.options, experiment.optimizer().custom()),
      rate_(std::move(rate)),
      delay_(static_cast<double>(delay)),
      synchronous_(synchronous) {
  const proto::Optimizer& optimizer = experiment.optimizer();
  numbers_.delay = delay_;
  numbers_.momentum = optimizer.momentum();
  numbers_.beta2 = optimizer.beta2();
  numbers_.epsilon = optimizer.epsilon();
  numbers_.weight_decay = optimizer.weight_decay();
  if (experiment.pipeline().weights().has_pipemare()) {
    const proto::Pipemare& pipemare = experiment.pipeline().weights().pipemare();
    if (pipemare.rescale() && delay > 1) {
      rescale_updates_ = pipemare.anneal();
    }
    if (pipemare.correct() && delay > 0) {
      displacement_decay_ = std::pow(pipemare.decay(), 1 / delay_);
    }
  }
}

double ChunkOptimizer::rate(std::int64_t step) const {
  const double base = rate_.at(step);
  if (rescale_updates_ == 0 || step < synchronous_) {
    return base;
  }
  // PipeMare T1: eta / tau^p, p = 1 - min(t / T, 1), t counted from the first asynchronous update.
  const double t = static_cast<double>(step - synchronous_) / static_cast<double>(rescale_updates_);
  return base / std::pow(delay_, 1 - std::min(t, 1.0));
}

UpdateNumbers ChunkOptimizer::numbers(std::int64_t t, double rate) const {
  UpdateNumbers numbers = numbers_;
  numbers.update = t;
  numbers.rate = rate;
  return numbers;
}

UpdateScalars ChunkOptimizer::scalars(const UpdateNumbers& numbers, double& carried) const {
  UpdateScalars scalars = basic_scalars(numbers);
  if (scheme_->method.scalars) {
    scheme_->method.scalars(numbers, carried, scalars);
  }
  return scalars;
}

double ChunkOptimizer::factor(const Reach& reach, double rate) const {
  const double gamma = numbers_.momentum;
  const double h = reach.horizon;
  switch (reach.kind) {
    case ReachKind::none:
      return 0;
    case ReachKind::linear:
      return rate * h;
    case ReachKind::geometric:
      return rate * gamma * (1 - std::pow(gamma, h)) / (1 - gamma);
    case ReachKind::displacement:
      return -h;  // w - (-h) delta with h < 0: h updates back
  }
  return 0;
}

}  // namespace troupe
