#include "apps/topologies/topology.hpp"

#include "apps/topologies/cast.hpp"
#include "apps/topologies/hogwild.hpp"
#include "apps/topologies/sandblaster.hpp"

namespace troupe {

Cast make_cast(const Blueprint& b) {
  if (is_sparse_hogwild(b.experiment)) {
    return build_sparse_hogwild(b);
  }
  if (shared_by(b.experiment) == Shared::own) {
    return build_sandblaster(b);
  }
  return build_cast(b);
}

std::vector<ChunkTimes> modelled_times(const Blueprint& b) {
  if (is_sparse_hogwild(b.experiment)) {
    return sparse_hogwild_times(b);
  }
  if (shared_by(b.experiment) == Shared::own) {
    return sandblaster_times(b);
  }
  return b.times;
}

}  // namespace troupe
