#include "runtime/schemes/step_rule.hpp"

#include "kernels/check.hpp"

#include <cmath>

namespace troupe {
namespace {

UpdateRule kernel_of(const proto::Experiment& experiment) {
  switch (experiment.optimizer().rule()) {
    case proto::OptimizerRule::sgd:
      return UpdateRule::sgd;
    case proto::OptimizerRule::momentum:
      return UpdateRule::momentum;
    case proto::OptimizerRule::nesterov:
      return UpdateRule::nesterov;
    case proto::OptimizerRule::adam:
      return UpdateRule::adam;
    case proto::OptimizerRule::adamw:
      return UpdateRule::adamw;
    case proto::OptimizerRule::nadam:
      return UpdateRule::nadam;
    case proto::OptimizerRule::nadamw:
      return UpdateRule::nadamw;
    case proto::OptimizerRule::adagrad:
      return UpdateRule::adagrad;
    case proto::OptimizerRule::rmsprop:
      return UpdateRule::rmsprop;
    case proto::OptimizerRule::muon:
      return UpdateRule::muon;
    case proto::OptimizerRule::custom:
      break;
  }
  TROUPE_CHECK(false, "optimizer.rule ", experiment.optimizer().rule(), " has no kernel");
}

}  // namespace

StepRule::StepRule(const proto::Experiment& experiment,
                   Rate rate,
                   std::int64_t delay,
                   std::int64_t synchronous)
    : optimizer_(experiment.optimizer()),
      rate_(std::move(rate)),
      kernel_(kernel_of(experiment)),
      synchronous_(synchronous) {
  const auto chosen = chosen_weights(experiment);
  TROUPE_CHECK(chosen, chosen ? "" : chosen.error().message);
  policy_ = *chosen;
  const WeightContext context = weight_context(experiment);
  values_ = context.values;
  if (policy_->step) {
    changed_ = policy_->step(context, delay);
  }
  if (changed_.mix) {
    kernel_ = UpdateRule::spike_compensation;
  }
}

double StepRule::rate(std::int64_t step) const {
  const double base = rate_.at(step);
  if (!changed_.rate_divisor || step < synchronous_) {
    return base;
  }
  return base / changed_.rate_divisor(static_cast<double>(step - synchronous_));
}

UpdateScalars StepRule::scalars(std::int64_t t, double rate, Products& products) const {
  UpdateScalars s;
  const double gamma = optimizer_.momentum();
  s.rate = static_cast<float>(rate);
  s.decay = static_cast<float>(optimizer_.weight_decay());
  s.gamma = static_cast<float>(gamma);
  s.beta2 = static_cast<float>(optimizer_.beta2());
  s.epsilon = static_cast<float>(optimizer_.epsilon());
  const double steps = static_cast<double>(t);
  // Of the beta that the kernel has: float32 leaves 1 - 0.999 wrong by 1.3e-5 of itself, and what
  // is taken in by that share must be corrected by that share.
  const auto unbiased = [steps](float beta) {
    return static_cast<float>(1 / (1 - std::pow(static_cast<double>(beta), steps)));
  };
  switch (kernel_) {
    case UpdateRule::spike_compensation:
      s.a = static_cast<float>(changed_.mix->velocity);
      s.b = static_cast<float>(changed_.mix->gradient);
      break;
    case UpdateRule::adam:
    case UpdateRule::adamw:
    case UpdateRule::muon:  // the parameters that it leaves to adamw
      s.m_scale = unbiased(s.gamma);
      s.v_scale = unbiased(s.beta2);
      break;
    case UpdateRule::nadam:
    case UpdateRule::nadamw: {
      // mu_t = beta1 (1 - 0.5 * 0.96^(t psi)), psi = 0.004 (Dozat 2016 as in PyTorch).
      const double mu = gamma * (1 - 0.5 * std::pow(0.96, steps * 0.004));
      const double mu_next = gamma * (1 - 0.5 * std::pow(0.96, (steps + 1) * 0.004));
      products.mu *= mu;
      s.g_scale = static_cast<float>((1 - mu) / (1 - products.mu));
      s.m_scale = static_cast<float>(mu_next / (1 - products.mu * mu_next));
      s.v_scale = unbiased(s.beta2);
      break;
    }
    default:
      break;
  }
  return s;
}

double StepRule::factor(const Reach& reach, double rate) const {
  const double gamma = optimizer_.momentum();
  const double h = reach.horizon;
  switch (reach.kind) {
    case ReachKind::none:
      return 0;
    case ReachKind::linear:
      return rate * (policy_->length ? policy_->length(values_, reach.horizon) : h);
    case ReachKind::geometric:
      return rate * gamma * (1 - std::pow(gamma, h)) / (1 - gamma);
    case ReachKind::displacement:
      return -h;  // w - (-h) delta with h < 0: h updates back
  }
  return 0;
}

}  // namespace troupe
