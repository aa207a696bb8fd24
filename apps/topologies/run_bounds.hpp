// What messages, records and checkpoints of a run may tell of.
#pragma once

#include "apps/topologies/blueprint.hpp"
#include "messages/bounds.hpp"

#include <cstddef>

namespace troupe {

/// `actors`: of its cast. Shapes of samples are known where error signals come from the next module alone.
RunBounds run_bounds(const Blueprint& blueprint, std::size_t actors);

}  // namespace troupe
