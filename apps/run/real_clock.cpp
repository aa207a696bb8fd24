#include "apps/run/real_clock.hpp"

#include "apps/topologies/topology.hpp"
#include "experiment/clock.pb.h"
#include "messages/sections.hpp"

namespace troupe {
namespace {

/// Factors on the seconds of each replica's jobs.
std::vector<double> held_back(const proto::Experiment& e) {
  const auto& listed = sections::clock(e).workers().hold_back();
  std::vector<double> factors;
  for (std::int64_t r = 0; r < sections::replica_count(e) && !listed.empty(); ++r) {
    factors.push_back(listed[static_cast<int>(r) % listed.size()]);
  }
  return factors;
}

}  // namespace

TimeModel time_model_of(const Blueprint& b) {
  return TimeModel(sections::clock(b.experiment),
                   modelled_times(b),
                   sections::seed(b.experiment),
                   static_cast<std::int32_t>(sections::replica_count(b.experiment)),
                   b.sizes);
}

RealClock::RealClock(const Blueprint& blueprint)
    : blueprint_(blueprint), times_(time_model_of(blueprint)) {}

ThreadOptions RealClock::options() const {
  const proto::Experiment& e = blueprint_.experiment;
  ThreadOptions options;
  options.modelled = sections::clock(e).modelled() ? &times_ : nullptr;
  options.hold_back = held_back(e);
  return options;
}

}  // namespace troupe
