// Goes through the actions of all stages in an order in which each comes after what it needs.
#pragma once

#include "runtime/schemes/schedules/schedule.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace troupe {

/// What a walk came to.
struct Walk {
  struct Stuck {
    std::int32_t stage = 0;
    Action at{};
    std::string lacks{};  // "B(0,0)@1"
  };

  std::int64_t looks = 0;      // at an action, to see whether it can start: what the walk cost
  std::vector<Stuck> stuck{};  // stages that wait for what never comes
};

/// The first `batches` mini-batches by the dependencies alone: `see` is called for each action when
/// all that it needs has been seen. A stage that waits is looked at again when a neighbour has
/// sent it something, so that there are at most three looks an action. Expects what check_order does.
Walk walk(const Schedule& schedule,
          std::int64_t batches,
          const std::function<void(std::int32_t stage, const Action& action)>& see);

}  // namespace troupe
