#include "runtime/schemes/optimizers/chunk_optimizer.hpp"

#include "experiment/optimizer.pb.h"
#include "experiment/pipeline.pb.h"
#include "kernels/check.hpp"
#include "messages/sections.hpp"

#include <cmath>
#include <utility>

namespace troupe {
namespace {

const PolicyScheme& policy_of(const proto::Experiment& experiment) {
  const auto chosen = chosen_weights(experiment);
  TROUPE_CHECK(chosen, chosen ? "" : chosen.error().message);
  return **chosen;
}

BasisSource basis_source(proto::Rotation::Source source) {
  switch (source) {
    case proto::Rotation::first:
      return BasisSource::first;
    case proto::Rotation::first_gram:
      return BasisSource::first_gram;
    case proto::Rotation::second:
      break;
  }
  return BasisSource::second;
}

}  // namespace

ChunkOptimizer::ChunkOptimizer(const proto::Experiment& experiment,
                               Rate rate,
                               std::int64_t delay,
                               std::int64_t synchronous)
    : policy_(&policy_of(experiment)), rate_(std::move(rate)), synchronous_(synchronous) {
  const WeightContext context = weight_context(experiment);
  policy_values_ = context.values;
  if (policy_->step) {
    changed_ = policy_->step(context, delay);
  }
  error_feedback_ =
      delay > 0 || policy_->uniform ? sections::pipeline(experiment).error_feedback() : 0;
  const proto::Optimizer& optimizer = sections::optimizer(experiment);
  scheme_ = changed_.mix ? &mixed_momentum() : &optimizer_scheme(optimizer);
  decays_matrices_alone_ = optimizer.decay_on() == proto::DecayOn::matrices;
  values_ = OptionValues(scheme_->info.options, optimizer.custom());
  numbers_.delay = static_cast<double>(delay);
  numbers_.momentum = optimizer.momentum();
  numbers_.beta2 = optimizer.beta2();
  numbers_.epsilon = optimizer.epsilon();
  numbers_.weight_decay = optimizer.weight_decay();
  numbers_.trust = optimizer.trust();
  const proto::Rotation& rotation = optimizer.rotation();
  numbers_.rotation = {.bilateral = rotation.geometry() == proto::Rotation::bilateral,
                       .source = basis_source(rotation.source()),
                       .every = rotation.every(),
                       .beta = rotation.beta() > 0 ? rotation.beta() : optimizer.beta2(),
                       .side_max = rotation.side_max()};
}

double ChunkOptimizer::rate(std::int64_t own_step) const {
  const double base = rate_.at(own_step);
  const std::int64_t step = rate_.before() + own_step;
  if (!changed_.rate_divisor || step < synchronous_) {
    return base;
  }
  return base / changed_.rate_divisor(static_cast<double>(step - synchronous_));
}

UpdateNumbers ChunkOptimizer::numbers(std::int64_t t, double rate) const {
  UpdateNumbers numbers = numbers_;
  numbers.update = t;
  numbers.rate = rate;
  return numbers;
}

UpdateScalars ChunkOptimizer::scalars(const UpdateNumbers& numbers, double& carried) const {
  UpdateScalars scalars = basic_scalars(numbers);
  if (changed_.mix) {
    scalars.a = static_cast<float>(changed_.mix->velocity);
    scalars.b = static_cast<float>(changed_.mix->gradient);
  }
  if (scheme_->method.scalars) {
    scheme_->method.scalars(numbers, carried, scalars);
  }
  return scalars;
}

/// Updates at the present direction that `horizon` fading ones come to.
double ChunkOptimizer::faded(std::int64_t t, std::int64_t horizon) const {
  const double gamma = numbers_.momentum;
  if (!scheme_->fades) {  // heavy ball, in closed form
    return gamma * (1 - std::pow(gamma, static_cast<double>(horizon))) / (1 - gamma);
  }
  const UpdateNumbers now = numbers(t, 0);
  double sum = 0;
  for (std::int64_t i = 1; i <= horizon; ++i) {
    sum += scheme_->fades(now, i);
  }
  return sum;
}

double ChunkOptimizer::factor(const Reach& reach, std::int64_t t, double rate) const {
  const double h = reach.horizon;
  switch (reach.kind) {
    case ReachKind::none:
      return 0;
    case ReachKind::linear:
      return rate * (policy_->length ? policy_->length(policy_values_, reach.horizon) : h);
    case ReachKind::geometric:
      return rate * faded(t, reach.horizon);
    case ReachKind::displacement:
      return -h;  // w - (-h) delta with h < 0: h updates back
  }
  return 0;
}

}  // namespace troupe
