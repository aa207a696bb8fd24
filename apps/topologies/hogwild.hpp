// Experiment -> cast of sparse Hogwild: a source and R workers on one shared buffer.
#pragma once

#include "apps/topologies/blueprint.hpp"
#include "messages/proto.hpp"
#include "runtime/schemes/constraint.hpp"
#include "runtime/system/machine.hpp"

#include <vector>

namespace troupe {

/// Whether the experiment is sparse Hogwild: logistic regression on sparse rows, by hogwild.
bool is_sparse_hogwild(const proto::Experiment& experiment);

/// What it cannot be; these hold of every other experiment.
Constraints<proto::Experiment> sparse_hogwild_checks();
/// Of hogwild on networks.
Constraints<Blueprint> hogwild_length_checks();

Cast build_sparse_hogwild(const Blueprint& blueprint);

/// Of a mini-batch of rows: the sparse FLOPs, or what clock.forward says.
std::vector<ChunkTimes> sparse_hogwild_times(const Blueprint& blueprint);

}  // namespace troupe
