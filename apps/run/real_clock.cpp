#include "apps/run/real_clock.hpp"

#include "apps/topologies/topology.hpp"
#include "experiment.pb.h"

namespace troupe {
namespace {

/// Factors on the seconds of each replica's jobs.
std::vector<double> held_back(const proto::Experiment& e) {
  const auto& listed = e.clock().workers().hold_back();
  std::vector<double> factors;
  for (std::int64_t r = 0; r < e.replicas().count() && !listed.empty(); ++r) {
    factors.push_back(listed[static_cast<int>(r) % listed.size()]);
  }
  return factors;
}

}  // namespace

TimeModel time_model_of(const Blueprint& b) {
  return TimeModel(b.experiment.clock(),
                   modelled_times(b),
                   b.experiment.seed(),
                   static_cast<std::int32_t>(b.experiment.replicas().count()),
                   b.sizes);
}

RealClock::RealClock(const Blueprint& blueprint)
    : blueprint_(blueprint), times_(time_model_of(blueprint)) {}

ThreadOptions RealClock::options() const {
  const proto::Experiment& e = blueprint_.experiment;
  ThreadOptions options;
  options.modelled = e.clock().modelled() ? &times_ : nullptr;
  options.hold_back = held_back(e);
  return options;
}

}  // namespace troupe
