#include "runtime/schemes/step_rule.hpp"

#include "kernels/check.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {
namespace {

UpdateKernel kernel_of(const proto::Experiment& experiment) {
  if (experiment.pipeline().weights().has_spike_compensation()) {
    return UpdateKernel::spike_compensation;
  }
  switch (experiment.optimizer().rule()) {
    case proto::OptimizerRule::sgd:
      return UpdateKernel::sgd;
    case proto::OptimizerRule::momentum:
      return UpdateKernel::momentum;
    case proto::OptimizerRule::nesterov:
      return UpdateKernel::nesterov;
    case proto::OptimizerRule::adam:
      return UpdateKernel::adam;
    case proto::OptimizerRule::adamw:
      return UpdateKernel::adamw;
    case proto::OptimizerRule::nadam:
      return UpdateKernel::nadam;
    case proto::OptimizerRule::nadamw:
      return UpdateKernel::nadamw;
    case proto::OptimizerRule::adagrad:
      return UpdateKernel::adagrad;
    case proto::OptimizerRule::rmsprop:
      return UpdateKernel::rmsprop;
    case proto::OptimizerRule::muon:
      return UpdateKernel::muon;
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
      delay_(static_cast<double>(delay)),
      synchronous_(synchronous) {
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

double StepRule::rate(std::int64_t step) const {
  const double base = rate_.at(step);
  if (rescale_updates_ == 0 || step < synchronous_) {
    return base;
  }
  // PipeMare T1: eta / tau^p, p = 1 - min(t / T, 1), t counted from the first asynchronous update.
  const double t = static_cast<double>(step - synchronous_) / static_cast<double>(rescale_updates_);
  return base / std::pow(delay_, 1 - std::min(t, 1.0));
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
    case UpdateKernel::spike_compensation:
      s.a = static_cast<float>(std::pow(gamma, delay_));
      s.b = static_cast<float>((1 - std::pow(gamma, delay_)) / (1 - gamma));
      break;
    case UpdateKernel::adam:
    case UpdateKernel::adamw:
    case UpdateKernel::muon:  // the parameters that it leaves to adamw
      s.m_scale = unbiased(s.gamma);
      s.v_scale = unbiased(s.beta2);
      break;
    case UpdateKernel::nadam:
    case UpdateKernel::nadamw: {
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
      return rate * h;
    case ReachKind::geometric:
      return rate * gamma * (1 - std::pow(gamma, h)) / (1 - gamma);
    case ReachKind::displacement:
      return -h;  // w - (-h) delta with h < 0: h updates back
  }
  return 0;
}

}  // namespace troupe
