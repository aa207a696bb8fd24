// From what a schedule writes to sequences that can be run; private to the folder.
#pragma once

#include "kernels/result.hpp"
#include "runtime/schemes/schedules/schedule_scheme.hpp"

#include <cstdint>
#include <vector>

namespace troupe::schedules {

/// Whether the chunks of a stage have each forward, each error signal, each gradient and each update
/// in order and once, none before what it needs on its own stage, and one mini-batch a period; and
/// whether a flushed schedule is one. Error (usage) with the first action that is out of place.
Result<void> check_order(const ScheduleScheme& scheme,
                         const Schedule& schedule,
                         std::int32_t stage,
                         const Sequence& sequence);

/// Fills in `natural` and `first_natural` of a sequence in order. Unrolls as many periods as it takes
/// for every clamp at step 0 to be past.
Sequence annotate(Sequence raw);

/// The sequences of `stages` stages that each have the chunks that `placement` gives them, from
/// `deep`, in which each chunk is a stage. What an action needs starts before it there, so that no
/// stage can wait for one that waits for it.
std::vector<Sequence> merge(const Schedule& deep,
                            const std::vector<std::int32_t>& placement,
                            std::int32_t stages);

}  // namespace troupe::schedules
