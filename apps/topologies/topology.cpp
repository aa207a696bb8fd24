#include "apps/topologies/topology.hpp"

#include "apps/topologies/hogwild.hpp"
#include "apps/topologies/sandblaster.hpp"
#include "messages/experiment.hpp"

namespace troupe {
namespace {

/// What only a run of hogwild on networks minds.
Result<void> check_hogwild(const Blueprint& b, bool virtual_clock) {
  const proto::Experiment& e = b.experiment;
  if (!e.replicas().exchange().has_hogwild()) {
    return {};
  }
  if (b.batches > 0 && b.batches < static_cast<std::int64_t>(e.replicas().count())) {
    return Error{ErrorKind::usage,
                 concat("replicas.count: ",
                        e.replicas().count(),
                        " is more than the run's ",
                        b.batches,
                        " updates, and each replica makes one at least")};
  }
  if (e.record().order() && !virtual_clock) {
    return Error{ErrorKind::usage,
                 "record.order: the order of messages says nothing of what threads do to a shared "
                 "buffer, so such a run cannot be repeated; set record.order=false, or use troupe "
                 "sim"};
  }
  return {};
}

}  // namespace

Result<Cast> make_cast(const Blueprint& b, bool virtual_clock) {
  if (is_sparse_hogwild(b.experiment)) {
    return build_sparse_hogwild(b, virtual_clock);
  }
  if (b.experiment.replicas().exchange().has_sandblaster()) {
    return build_sandblaster(b);
  }
  if (auto sound = check_hogwild(b, virtual_clock); !sound) {
    return sound.error();
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
