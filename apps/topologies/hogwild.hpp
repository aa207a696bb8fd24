// Experiment -> cast of sparse Hogwild: a source and R workers on one shared buffer.
#pragma once

#include "apps/topologies/pipeline.hpp"
#include "messages/proto.hpp"

#include <vector>

namespace troupe {

/// Whether the experiment is sparse Hogwild: logistic regression on sparse rows, by hogwild.
bool is_sparse_hogwild(const proto::Experiment& experiment);

/// Error (usage) where the experiment asks for what has no meaning here.
Result<void> check_sparse_hogwild(const Blueprint& blueprint);

Cast build_sparse_hogwild(const Blueprint& blueprint);

/// Of a mini-batch of rows: the sparse FLOPs, or what clock.forward says.
std::vector<ChunkTimes> sparse_hogwild_times(const Blueprint& blueprint);

}  // namespace troupe
