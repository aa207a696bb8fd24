// Which training samples each replica sees, where they do not share one shuffled order.
#pragma once

#include "runtime/data/dataset.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

/// The training samples sorted by label (equal ones in their order) and dealt in `blocks` equal
/// blocks, so that each sees few classes; the last size % blocks samples are left out. Data with one
/// label a sample. By block.
std::vector<std::vector<std::int64_t>> blocks_by_label(const Dataset& data, std::int64_t blocks);

}  // namespace troupe
