#include "runtime/schemes/policies/horizon.hpp"

#include "experiment/replicas.pb.h"
#include "messages/sections.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {
namespace {

double lag_at(const proto::Experiment& e, double delay) {
  const RuleScheme& admit = admission_of(sections::replicas(e));
  if (admit.lag) {
    return admit.lag(e, delay);
  }
  const auto pushes = static_cast<double>(admit.pushes ? admit.pushes(e) : 1);
  return pushes_between(e, delay) / std::max(1.0, pushes);
}

}  // namespace

std::int64_t Horizon::of(std::int64_t own) const {
  return std::max<std::int64_t>(0, std::llround(lag(own)));
}

std::int64_t Horizon::stride() const {
  return std::max<std::int64_t>(1, std::llround(slope));
}

double pushes_between(const proto::Experiment& e, double delay) {
  const auto R = static_cast<double>(sections::replica_count(e));
  const auto p = static_cast<double>(sections::replicas(e).exchange().parameter_server().n_push());
  return R * delay / p + (R - 1) * (p + 1) / (2 * p);
}

Horizon lag_at_servers(const proto::Experiment& experiment) {
  const double base = lag_at(experiment, 0);
  return {.slope = lag_at(experiment, 1) - base, .base = base};
}

Horizon lag_of(const proto::Experiment& experiment) {
  const bool ruled = sections::replica_count(experiment) > 1 && exchange_of(experiment).ruled;
  if (!ruled || make_link({.experiment = experiment}).steps()) {
    return {};
  }
  return lag_at_servers(experiment);
}

std::int64_t own_pushes_ahead(const proto::Experiment& e, std::int64_t delay) {
  if (sections::replicas(e).horizon() == proto::Replicas::paper) {
    return 1;
  }
  return delay / sections::replicas(e).exchange().parameter_server().n_push() + 1;
}

double velocity_reach(double gamma, std::int64_t pushes) {
  double reach = gamma;
  for (std::int64_t i = 1; i < pushes; ++i) {
    reach = gamma + gamma * reach;
  }
  return reach;
}

Horizon horizon_of(const proto::Experiment& experiment) {
  return sections::replicas(experiment).horizon() == proto::Replicas::paper ? Horizon{}
                                                                            : lag_of(experiment);
}

}  // namespace troupe
