#include "apps/topologies/topology.hpp"

#include "apps/topologies/hogwild.hpp"
#include "apps/topologies/sandblaster.hpp"
#include "messages/experiment.hpp"

#include <algorithm>

namespace troupe {
namespace {

/// Of hogwild on networks.
Result<void> check_hogwild(const Blueprint& b) {
  const std::int64_t replicas = b.experiment.replicas().count();
  if (b.batches > 0 && b.batches < replicas) {
    return Error{ErrorKind::usage,
                 concat("replicas.count: ",
                        replicas,
                        " is more than the run's ",
                        b.batches,
                        " updates, and each replica makes one at least")};
  }
  return {};
}

/// Whether seconds of the virtual clock go by at all.
bool time_advances(const Blueprint& b) {
  const std::vector<ChunkTimes> times = modelled_times(b);
  return std::any_of(times.begin(), times.end(), [&](const ChunkTimes& t) {
    return t.forward + t.input_gradient + t.weight_gradient + t.update > 0 ||
           ((t.link > 0 || t.link_back > 0) && times.size() > 1);
  });
}

}  // namespace

Result<void> check_topology(const Blueprint& b) {
  if (is_sparse_hogwild(b.experiment)) {
    return check_sparse_hogwild(b);
  }
  if (b.experiment.replicas().exchange().has_sandblaster()) {
    return check_sandblaster(b);
  }
  return b.experiment.replicas().exchange().has_hogwild() ? check_hogwild(b) : Result<void>();
}

Result<void> check_clock(const Blueprint& b, bool virtual_clock) {
  const proto::Experiment& e = b.experiment;
  if (virtual_clock && b.batches == 0 && e.stop().target_accuracy() == 0 && !time_advances(b)) {
    return Error{ErrorKind::usage,
                 "stop.seconds: the run would never end, as all modelled times (clock) are 0; set "
                 "stop.updates or stop.epochs"};
  }
  if (e.record().order() && e.replicas().exchange().has_hogwild() && !virtual_clock) {
    return Error{ErrorKind::usage,
                 "record.order: the order of messages says nothing of what threads do to a shared "
                 "buffer, so such a run cannot be repeated; set record.order=false, or use troupe "
                 "sim"};
  }
  const auto& factors = e.clock().workers().hold_back();
  const bool held =
      std::any_of(factors.begin(), factors.end(), [](double factor) { return factor > 1; });
  if (held && (virtual_clock || e.clock().modelled())) {
    return Error{ErrorKind::usage,
                 concat("clock.workers.hold_back: stretches the seconds that work takes on the "
                        "real clock, and ",
                        virtual_clock ? "on the virtual one" : "with clock.modelled",
                        " they are modelled; slow replicas are clock.workers.slowness there")};
  }
  return {};
}

Cast make_cast(const Blueprint& b) {
  if (is_sparse_hogwild(b.experiment)) {
    return build_sparse_hogwild(b);
  }
  if (b.experiment.replicas().exchange().has_sandblaster()) {
    return build_sandblaster(b);
  }
  return build_cast(b);
}

std::vector<ChunkTimes> modelled_times(const Blueprint& b) {
  if (is_sparse_hogwild(b.experiment)) {
    return sparse_hogwild_times(b);
  }
  if (b.experiment.replicas().exchange().has_sandblaster()) {
    return sandblaster_times(b);
  }
  return b.times;
}

}  // namespace troupe
