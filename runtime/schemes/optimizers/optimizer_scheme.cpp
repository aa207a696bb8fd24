#include "runtime/schemes/optimizers/optimizer_scheme.hpp"

#include "experiment/optimizer.pb.h"
#include "kernels/check.hpp"
#include "kernels/wording.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/optimizers/steps.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {
namespace {

/// 1 / (1 - beta^t), of the beta that the kernel has: float32 leaves 1 - 0.999 wrong by 1.3e-5 of
/// itself, and what is taken in by that share must be corrected by that share.
float unbiased(float beta, std::int64_t update) {
  return static_cast<float>(1 /
                            (1 - std::pow(static_cast<double>(beta), static_cast<double>(update))));
}

void adam_scalars(const UpdateNumbers& numbers, double& /*carried*/, UpdateScalars& s) {
  adam_corrections(numbers, s);
}

/// m fades by beta1, and its bias correction grows; v is taken to stay, as FTPipe's msnag for Adam has
/// it (saareliad/FTPipe, pipe/weight_prediction/adam.py). Of v_hat's epsilon nothing is known here: it
/// is as at t, which is the same to 1e-8 / sqrt(v_hat).
double adam_fades(const UpdateNumbers& now, std::int64_t i) {
  const auto unbiased_at = [&now](double beta, std::int64_t ahead) {
    return 1 - std::pow(beta, static_cast<double>(now.update + ahead));
  };
  const double m = std::pow(now.momentum, static_cast<double>(i)) * unbiased_at(now.momentum, 0) /
                   unbiased_at(now.momentum, i);
  return m * std::sqrt(unbiased_at(now.beta2, i) / unbiased_at(now.beta2, 0));
}

/// mu_t = beta1 (1 - 0.5 * 0.96^(t psi)), psi = 0.004 (Dozat 2016 as in PyTorch). Carried: the product
/// of all mu_i so far.
void nadam_scalars(const UpdateNumbers& numbers, double& carried, UpdateScalars& s) {
  const auto t = static_cast<double>(numbers.update);
  const auto mu_at = [&numbers](double at) {
    return numbers.momentum * (1 - 0.5 * std::pow(0.96, at * 0.004));
  };
  const double mu = mu_at(t);
  const double mu_next = mu_at(t + 1);
  carried *= mu;
  s.g_scale = static_cast<float>((1 - mu) / (1 - carried));
  s.m_scale = static_cast<float>(mu_next / (1 - carried * mu_next));
  s.v_scale = unbiased(s.beta2, numbers.update);
}

/// A built-in one: `of` with the name and summary of the enumerator in messages/experiment/optimizer.proto.
OptimizerScheme named(proto::OptimizerRule::Kind rule, OptimizerScheme of) {
  const auto* value = proto::OptimizerRule::Kind_descriptor()->FindValueByNumber(rule);
  of.info.name = value->name();
  of.info.summary = value->options().GetExtension(proto::value_doc);
  return of;
}

OptimizerScheme with_kernel(proto::OptimizerRule::Kind rule,
                            UpdateKernel kernel,
                            OptimizerScheme of = {}) {
  of.method.kernel = kernel;
  of.decays_gradient = kernel != UpdateKernel::adamw && kernel != UpdateKernel::nadamw &&
                       kernel != UpdateKernel::lion;
  return named(rule, std::move(of));
}

/// One that moves every parameter by itself in the same way.
OptimizerScheme layerwise(proto::OptimizerRule::Kind rule,
                          const UpdateMethod& method,
                          OptimizerScheme of = {}) {
  of.method = method;
  of.matrices = method;
  return named(rule, std::move(of));
}

Result<void> check_soap(const proto::Experiment& experiment) {
  const auto source = sections::optimizer(experiment).rotation().source();
  if (source != proto::Rotation::second) {
    return usage_error(
        "optimizer.rotation.source: soap works with the mean of squares alone, and {} "
        "looks at the mean gradient; use second, or optimizer.rule=basis_rotation",
        proto::Rotation::Source_Name(source));
  }
  return {};
}

constexpr const char* kWithoutDecay = "the step without the decoupled weight decay";

constexpr const char* kShareOfNadam =
    "momentum's share of the step alone, mu_(t+1) m / (1 - mu_1 ... mu_(t+1)) over sqrt(v_hat) + "
    "epsilon: the gradient's share, (1 - mu_t) / (1 - mu_1 ... mu_t), is not met again";

std::vector<OptimizerScheme> built_in() {
  using Rule = proto::OptimizerRule;
  const UpdateMethod adam{.scalars = adam_scalars};
  const UpdateMethod nadam{.scalars = nadam_scalars};
  return {
      with_kernel(Rule::sgd, UpdateKernel::sgd, {.plain = true}),
      with_kernel(Rule::momentum, UpdateKernel::momentum, {.heavy_ball = true, .plain = true}),
      with_kernel(Rule::nesterov,
                  UpdateKernel::nesterov,
                  {.along = "v, its share without the look-ahead of g", .plain = true}),
      with_kernel(Rule::adam, UpdateKernel::adam, {.method = adam, .fades = adam_fades}),
      with_kernel(Rule::adamw,
                  UpdateKernel::adamw,
                  {.method = adam, .fades = adam_fades, .along = kWithoutDecay}),
      with_kernel(Rule::nadam,
                  UpdateKernel::nadam,
                  {.method = nadam, .along = kShareOfNadam, .discounts_gradient = true}),
      with_kernel(Rule::nadamw,
                  UpdateKernel::nadamw,
                  {.method = nadam, .along = kShareOfNadam, .discounts_gradient = true}),
      with_kernel(Rule::adagrad, UpdateKernel::adagrad),
      with_kernel(Rule::rmsprop, UpdateKernel::rmsprop),
      with_kernel(Rule::muon,
                  UpdateKernel::adamw,
                  {.method = adam, .matrices = UpdateMethod{.moments = 1, .update = muon_step}}),
      with_kernel(Rule::lion, UpdateKernel::lion, {.along = kWithoutDecay}),
      layerwise(Rule::lars,
                {.moments = 1, .update = lars_step},
                {.along = "v over the present rate", .decays_gradient = true}),
      layerwise(Rule::lamb, {.moments = 2, .update = lamb_step}),
      with_kernel(
          Rule::soap,
          UpdateKernel::adamw,
          {.info = {.name = "", .summary = "", .check = check_soap},
           .method = adam,
           .matrices = UpdateMethod{.moments = 2, .also = rotation_sizes, .update = soap_step},
           .along = kWithoutDecay}),
      with_kernel(
          Rule::basis_rotation,
          UpdateKernel::adamw,
          {.method = adam,
           .matrices =
               UpdateMethod{.moments = 2, .also = rotation_sizes, .update = basis_rotation_step},
           .along = kWithoutDecay}),
  };
}

Registry<OptimizerScheme>& table() {
  static Registry<OptimizerScheme> all(built_in());
  return all;
}

/// What is wrong with a method, or "".
std::string fault(const UpdateMethod& method) {
  constexpr int kMomentsMax = 16;
  if (method.kernel.has_value() == static_cast<bool>(method.update)) {
    return "sets kernel and update both, or neither; set one of them";
  }
  if (method.moments < 0 || method.moments > kMomentsMax) {
    return concat("keeps ", method.moments, " moments; expected 0 to ", kMomentsMax);
  }
  return method.kernel && method.moments > 0 ? "sets moments, which the kernel knows" : "";
}

}  // namespace

Result<void> register_optimizer(OptimizerScheme scheme) {
  for (const UpdateMethod* method :
       {&scheme.method, scheme.matrices ? &*scheme.matrices : &scheme.method}) {
    if (const std::string why = fault(*method); !why.empty()) {
      return usage_error("register_optimizer: \"{}{}{}",
                         scheme.info.name,
                         method == &scheme.method ? "\".method " : "\".matrices ",
                         why);
    }
  }
  return table().add(std::move(scheme), "register_optimizer");
}

const Registry<OptimizerScheme>& optimizer_schemes() {
  return table();
}

const OptimizerScheme& optimizer_scheme(const proto::Optimizer& optimizer) {
  const bool custom = optimizer.rule() == proto::OptimizerRule::custom;
  const std::string& name =
      custom ? optimizer.custom().name() : proto::OptimizerRule::Kind_Name(optimizer.rule());
  const OptimizerScheme* found = table().find(name);
  TROUPE_CHECK(found, "no optimizer '", name, "'");
  return *found;
}

const OptimizerScheme& mixed_momentum() {
  static const OptimizerScheme scheme{
      .info = {.name = "mixed_momentum", .summary = "v = gamma v + g; w -= eta (a v + b g)"},
      .method = {.kernel = UpdateKernel::spike_compensation}};
  return scheme;
}

Result<void> check_optimizer(const proto::Experiment& experiment) {
  const proto::Optimizer& optimizer = sections::optimizer(experiment);
  if (optimizer.rule() == proto::OptimizerRule::custom) {
    TROUPE_TRY(table().chosen(optimizer.custom(), "optimizer", "optimizer.rule"));
  }
  const OptimizerScheme& scheme = optimizer_scheme(optimizer);
  return scheme.info.check ? scheme.info.check(experiment) : Result<void>();
}

std::vector<std::string> kept_names(const OptimizerScheme& scheme,
                                    const UpdateMethod& method,
                                    std::size_t count) {
  std::vector<std::string> names;
  switch (method.kernel.value_or(UpdateKernel::sgd)) {
    case UpdateKernel::momentum:
    case UpdateKernel::nesterov:
    case UpdateKernel::spike_compensation:
      names = {"momentum"};
      break;
    case UpdateKernel::adam:
    case UpdateKernel::adamw:
      names = {"exp_avg", "exp_avg_sq"};
      break;
    case UpdateKernel::nadam:
    case UpdateKernel::nadamw:  // their product of all mu_i goes with them
      names = {"nadam.exp_avg", "nadam.exp_avg_sq"};
      break;
    case UpdateKernel::adagrad:
      names = {"sum"};
      break;
    case UpdateKernel::rmsprop:
      names = {"momentum_buffer", "square_avg"};
      break;
    case UpdateKernel::sgd:
    case UpdateKernel::lion:
    case UpdateKernel::muon:
      break;
  }
  for (std::size_t i = names.size(); i < count; ++i) {
    names.push_back(concat(scheme.info.name, '.', i));
  }
  names.resize(count);
  return names;
}

void adam_corrections(const UpdateNumbers& numbers, UpdateScalars& scalars) {
  scalars.m_scale = unbiased(scalars.gamma, numbers.update);
  scalars.v_scale = unbiased(scalars.beta2, numbers.update);
}

UpdateScalars basic_scalars(const UpdateNumbers& numbers) {
  UpdateScalars s;
  s.gradient_scale = static_cast<float>(numbers.gradient_scale);
  s.rate = static_cast<float>(numbers.rate);
  s.decay = static_cast<float>(numbers.weight_decay);
  s.gamma = static_cast<float>(numbers.momentum);
  s.beta2 = static_cast<float>(numbers.beta2);
  s.epsilon = static_cast<float>(numbers.epsilon);
  return s;
}

}  // namespace troupe
