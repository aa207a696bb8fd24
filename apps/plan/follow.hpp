// A chunk's actions in the order of its stage's sequence, far enough for everything to have been seen.
#pragma once

#include "runtime/schemes/schedules/schedule.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe {

/// Follows a chunk's actions from the start until every clamp is past and each kind of reader has
/// been seen. `settled` is true in the last two periods, when as much is alive as ever will be.
template <class See>
void follow(const Schedule& schedule, std::int32_t chunk, const See& see) {
  const Sequence& sequence = schedule.stages[static_cast<std::size_t>(schedule.stage_of(chunk))];
  const auto periods = static_cast<std::uint64_t>(2 * schedule.delay_max + 4);
  const std::uint64_t length = sequence.prologue.size() + periods * sequence.period.size();
  for (std::uint64_t i = 0; i < length; ++i) {
    const Action action = sequence.at(i);
    if (action.chunk == chunk) {
      see(action, i + 2 * sequence.period.size() >= length);
    }
  }
}

inline bool is_backward(Act act) {
  return act == Act::backward || act == Act::input_gradient;
}

}  // namespace troupe
